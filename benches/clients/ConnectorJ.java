// The cases by MySQL Connector/J. A driver as benches/clients/spoken.py describes them.

import com.mysql.cj.jdbc.JdbcConnection;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.io.ByteArrayInputStream;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Time;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public final class ConnectorJ {
    private static final String CLIENT = System.getenv("HR_CLIENT");
    private static final String FILE = System.getenv("HR_FILE");
    private static final int MIB = 1 << 20;
    private static final int[] LARGE = {15 * MIB, (1 << 24) - 1, 17 * MIB, 33 * MIB};
    private static final Map<String, List<String>> STATEMENTS = new HashMap<>();

    /** The library cannot do this. */
    private static final class Absent extends Exception {
        Absent(String reason) {
            super(reason);
        }
    }

    private interface Work {
        void on(Connection connection) throws Exception;
    }

    private static void readStatements() throws Exception {
        String[] sections = Files.readString(Path.of(System.getenv("HR_STATEMENTS"))).split("== ");
        for (int i = 1; i < sections.length; i++) {
            int end = sections[i].indexOf('\n');
            List<String> list = new ArrayList<>();
            for (String part : sections[i].substring(end + 1).replace("{file}", FILE).split("\n%\n")) {
                list.add(part.endsWith("\n") ? part.substring(0, part.length() - 1) : part);
            }
            STATEMENTS.put(sections[i].substring(0, end), list);
        }
    }

    private static String ofLength(int length) {
        String frame = "SELECT " + length + " AS size, MD5('')";
        return frame.replace("''", "'" + "x".repeat(length - 1 - frame.length()) + "'");
    }

    private static Connection connect(String name, String options) throws SQLException {
        return connect(name, "secret", CLIENT, options);
    }

    private static Connection connect(String name, String password, String database, String options)
            throws SQLException {
        boolean encrypted = System.getenv("HR_TLS").equals("1") || name.equals("tls");
        String url = "jdbc:mysql://" + System.getenv("HR_HOST") + ":" + System.getenv("HR_PORT") + "/" + database
                + "?sslMode=" + (encrypted ? "REQUIRED" : "DISABLED") + "&useServerPrepStmts=true&" + options;
        return DriverManager.getConnection(url, CLIENT + "_" + name, password);
    }

    private static void with(String name, String options, Work work) throws Exception {
        try (Connection connection = connect(name, options)) {
            work.on(connection);
        }
    }

    private static void drain(Statement statement, boolean hasRows) throws SQLException {
        boolean isResult = hasRows;
        while (isResult || statement.getUpdateCount() != -1) {
            if (isResult) {
                drain(statement.getResultSet());
            }
            isResult = statement.getMoreResults();
        }
    }

    private static void drain(ResultSet rows) throws SQLException {
        while (rows.next()) {
            rows.getObject(1);
        }
    }

    private static void read(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            drain(statement, statement.execute(sql));
        }
    }

    private static void tried(Connection connection, String sql) {
        try {
            read(connection, sql);
        } catch (SQLException expected) {
            // What it says is the server's to say.
        }
    }

    private static void text() throws Exception {
        with("text", "useServerPrepStmts=false", connection -> {
            for (String statement : STATEMENTS.get("text")) {
                read(connection, statement);
            }
            connection.isValid(5);
            connection.setAutoCommit(false);
            try (PreparedStatement insert =
                    ((JdbcConnection) connection).clientPrepareStatement("INSERT INTO t (name, price) VALUES (?, ?)")) {
                insert.setString(1, "a\0\n\\'");
                insert.setInt(2, 1);
                insert.executeUpdate();
            }
            connection.commit();
            connection.setAutoCommit(true);
        });
    }

    private static void first(PreparedStatement insert) throws SQLException {
        Timestamp moment = Timestamp.valueOf("2024-02-29 23:59:58.123456");
        byte[] all = new byte[256];
        for (int i = 0; i < all.length; i++) {
            all[i] = (byte) i;
        }
        insert.setByte(1, (byte) -128);
        insert.setShort(2, (short) 255);
        insert.setShort(3, (short) -32768);
        insert.setInt(4, 8388607);
        insert.setInt(5, Integer.MIN_VALUE);
        insert.setLong(6, 4294967295L);
        insert.setLong(7, Long.MIN_VALUE);
        insert.setString(8, "18446744073709551615");
        insert.setFloat(9, 1.5f);
        insert.setDouble(10, -2.25e300);
        insert.setBigDecimal(11, new BigDecimal("-12345678.901234"));
        insert.setInt(12, 5);
        insert.setDate(13, Date.valueOf("1000-01-01"));
        insert.setTimestamp(14, moment);
        insert.setTimestamp(15, moment);
        insert.setTime(16, Time.valueOf("23:59:59"));
        insert.setShort(17, (short) 2155);
        insert.setString(18, "žluťoučký");
        insert.setString(19, "x".repeat(70_000));
        insert.setBytes(20, all);
        insert.setString(21, "{\"a\": [1, null]}");
        insert.setString(22, "b");
        insert.setString(23, "a,c");
    }

    private static void prepared() throws Exception {
        List<String> list = STATEMENTS.get("prepared");
        with("prepared", "", connection -> {
            try (PreparedStatement insert = connection.prepareStatement(list.get(0))) {
                first(insert);
                insert.executeUpdate();
                // From a stream: sent ahead of the execution, in pieces.
                insert.setBinaryStream(20, new ByteArrayInputStream(new byte[30_000]), 30_000);
                insert.executeUpdate();
                insert.clearParameters();
                for (int i = 1; i <= 23; i++) {
                    insert.setNull(i, Types.VARCHAR);
                }
                insert.addBatch();
                first(insert);
                insert.addBatch();
                insert.executeBatch();
            }
            try (PreparedStatement select = connection.prepareStatement(list.get(1))) {
                for (long[] values : new long[][] {{Long.MIN_VALUE, 5}, {0, 7}}) {
                    select.setLong(1, values[0]);
                    select.setLong(2, values[1]);
                    drain(select.executeQuery());
                }
            }
            try (PreparedStatement count = connection.prepareStatement(list.get(2))) {
                drain(count.executeQuery());
                drain(count.executeQuery());
            }
            for (String wrong : list.subList(3, 5)) {
                try (PreparedStatement statement = ((JdbcConnection) connection).serverPrepareStatement(wrong)) {
                    statement.setInt(1, 1);
                    drain(statement.executeQuery());
                } catch (SQLException expected) {
                    // Both are wrong.
                }
            }
        });
    }

    private static void multi() throws Exception {
        with("multi", "allowMultiQueries=true", connection -> {
            for (String statement : STATEMENTS.get("multi")) {
                tried(connection, statement);
            }
        });
    }

    private static void local() throws Exception {
        with("local", "allowLoadLocalInfile=true", connection -> {
            for (String statement : STATEMENTS.get("local")) {
                read(connection, statement);
            }
        });
    }

    private static void cursors() throws Exception {
        with("cursors", "useCursorFetch=true", connection -> {
            try (PreparedStatement select = connection.prepareStatement("SELECT * FROM many WHERE id > ?")) {
                select.setFetchSize(100);
                for (int from : new int[] {0, 950, 5000}) {
                    select.setInt(1, from);
                    drain(select.executeQuery());
                }
            }
            // Left in the middle.
            try (PreparedStatement select = connection.prepareStatement("SELECT * FROM many")) {
                select.setFetchSize(100);
                select.executeQuery().next();
            }
        });
    }

    private static void unbuffered() throws Exception {
        with("unbuffered", "", connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.setFetchSize(Integer.MIN_VALUE);
                drain(statement.executeQuery("SELECT * FROM many"));
            }
        });
    }

    private static void changeUser() throws Exception {
        with("change_user", "", connection -> {
            read(connection, "SELECT 'before'");
            ((JdbcConnection) connection).changeUser(CLIENT + "_change_user_b", "secret");
            read(connection, "USE " + CLIENT);
            read(connection, "SELECT name FROM t WHERE id = 1");
            ((JdbcConnection) connection).resetServerState();
            read(connection, "USE " + CLIENT);
            read(connection, "SELECT name FROM t WHERE id = 4");
        });
    }

    private static void compression() throws Exception {
        with("compression", "useCompression=true", connection -> {
            read(connection, "SELECT name FROM t WHERE id = 1");
            read(connection, "SELECT * FROM many");
            read(connection, ofLength(100_000));
            one(connection, 3);
        });
    }

    private static void one(Connection connection, int id) throws SQLException {
        try (PreparedStatement select = connection.prepareStatement("SELECT name FROM t WHERE id = ?")) {
            select.setInt(1, id);
            drain(select.executeQuery());
        }
    }

    private static void tls() throws Exception {
        with("tls", "", connection -> {
            read(connection, "SELECT name FROM t WHERE id = 1");
            one(connection, 3);
        });
    }

    private static void large() throws Exception {
        with("large", "", connection -> {
            for (int length : LARGE) {
                read(connection, ofLength(length));
            }
            try (PreparedStatement select = connection.prepareStatement("SELECT LENGTH(?), MD5('')")) {
                select.setBytes(1, "x".repeat(17 * MIB).getBytes(StandardCharsets.US_ASCII));
                drain(select.executeQuery());
            }
        });
    }

    private static void kill() throws Exception {
        for (String how : new String[] {"KILL QUERY", "KILL"}) {
            with("kill", "", killer -> {
                Connection victim = connect("kill", "");
                long number = ((JdbcConnection) victim).getSession().getThreadId();
                Thread sleep = new Thread(() -> tried(victim, "SELECT SLEEP(5)"));
                sleep.start();
                sleep.join(500);
                read(killer, how + " " + number);
                sleep.join();
                if (how.equals("KILL QUERY")) {
                    read(victim, "SELECT 'still here'");
                }
                victim.close();
            });
        }
        // Its own timeout: the library sends KILL QUERY over a connection that it opens for that.
        with("kill", "", connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.setQueryTimeout(1);
                statement.execute("SELECT SLEEP(5)");
            } catch (SQLException expected) {
                read(connection, "SELECT 'still here'");
            }
        });
    }

    private static void errors() throws Exception {
        with("errors", "", connection -> {
            for (String statement : STATEMENTS.get("errors")) {
                tried(connection, statement);
            }
        });
        for (String[] wrong : new String[][] {{"wrong", CLIENT}, {"secret", "absent"}}) {
            try {
                connect("errors", wrong[0], wrong[1], "").close();
            } catch (SQLException expected) {
                // Refused.
            }
        }
    }

    private static void run(String name) throws Exception {
        switch (name) {
            case "text" -> text();
            case "prepared" -> prepared();
            case "prepared_sql" -> throw new Absent("it is the clients' without prepared statements");
            case "multi" -> multi();
            case "local" -> local();
            case "cursors" -> cursors();
            case "unbuffered" -> unbuffered();
            case "change_user" -> changeUser();
            case "compression" -> compression();
            case "tls" -> tls();
            case "large" -> large();
            case "kill" -> kill();
            case "errors" -> errors();
            default -> throw new IllegalArgumentException("no case " + name);
        }
    }

    public static void main(String[] names) throws Exception {
        readStatements();
        for (String name : names) {
            String said = "";
            try {
                run(name);
            } catch (Absent reason) {
                said = ", \"absent\": \"" + reason.getMessage() + "\"";
            } catch (Exception error) {
                String words = String.valueOf(error).replaceAll("[^ -~]|[\"\\\\]", " ");
                said = ", \"failed\": \"" + words.substring(0, Math.min(300, words.length())) + "\"";
            }
            System.out.println("{\"case\": \"" + name + "\"" + said + "}");
        }
        System.exit(0);
    }
}
