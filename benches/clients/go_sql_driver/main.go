// The cases by go-sql-driver/mysql. A driver as benches/clients/spoken.py describes them.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const mib = 1 << 20

var (
	client     = os.Getenv("HR_CLIENT")
	file       = os.Getenv("HR_FILE")
	statements = map[string][]string{}
	large      = []int{15 * mib, 1<<24 - 1, 17 * mib, 33 * mib}
	background = context.Background()
)

// Why the library cannot do something.
type absent string

func (reason absent) Error() string { return string(reason) }

func readStatements(path string) error {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, section := range strings.Split(string(bytes), "== ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		text = strings.ReplaceAll(text, "{file}", file)
		for _, part := range strings.Split(text, "\n%\n") {
			statements[name] = append(statements[name], strings.TrimSuffix(part, "\n"))
		}
	}
	return nil
}

func ofLength(length int) string {
	frame := fmt.Sprintf("SELECT %d AS size, MD5('')", length)
	return strings.Replace(frame, "''", "'"+strings.Repeat("x", length-1-len(frame))+"'", 1)
}

// A pool of one connection, and that connection.
func connect(name string, options ...string) (*sql.DB, *sql.Conn, error) {
	return connectAs(name, "secret", client, options...)
}

func connectAs(name, password, database string, options ...string) (*sql.DB, *sql.Conn, error) {
	if os.Getenv("HR_TLS") == "1" || name == "tls" {
		options = append(options, "tls=skip-verify")
	}
	options = append(options, "allowNativePasswords=true", "maxAllowedPacket=67108864")
	dsn := fmt.Sprintf("%s_%s:%s@tcp(%s:%s)/%s?%s", client, name, password, os.Getenv("HR_HOST"),
		os.Getenv("HR_PORT"), database, strings.Join(options, "&"))
	pool, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, nil, err
	}
	conn, err := pool.Conn(background)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, conn, nil
}

func with(name string, work func(conn *sql.Conn) error, options ...string) error {
	pool, conn, err := connect(name, options...)
	if err != nil {
		return err
	}
	defer pool.Close()
	defer conn.Close()
	return work(conn)
}

// All rows of all results.
func drain(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		for rows.Next() {
		}
		if !rows.NextResultSet() {
			return rows.Err()
		}
	}
}

func each(conn *sql.Conn, list []string) error {
	for _, statement := range list {
		if err := drain(conn.QueryContext(background, statement)); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func text() error {
	return with("text", func(conn *sql.Conn) error {
		if err := each(conn, statements["text"]); err != nil {
			return err
		}
		if err := conn.PingContext(background); err != nil {
			return err
		}
		transaction, err := conn.BeginTx(background, nil)
		if err != nil {
			return err
		}
		if _, err := transaction.Exec("INSERT INTO t (name, price) VALUES (?, ?)", "a\x00\n\\'", 1); err != nil {
			return err
		}
		return transaction.Commit()
	}, "interpolateParams=true")
}

func prepared() error {
	moment := time.Date(2024, 2, 29, 23, 59, 58, 123456000, time.UTC)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	rows := [][]any{
		{int8(-128), uint8(255), int16(-32768), 8388607, int32(-2147483648), uint32(4294967295), int64(-1 << 63),
			uint64(1<<64 - 1), float32(1.5), -2.25e300, "-12345678.901234", 5, "1000-01-01", moment, moment,
			"-838:59:59", 2155, "žluťoučký", strings.Repeat("x", 70000), all, json.RawMessage(`{"a": [1, null]}`),
			"b", "a,c"},
		make([]any, 23),
		{0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, "0", false, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
			time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2037, 1, 1, 0, 0, 0, 0, time.UTC), "0:0:0", 1901,
			"", "", []byte{}, "[]", "a", ""},
	}
	list := statements["prepared"]
	return with("prepared", func(conn *sql.Conn) error {
		insert, err := conn.PrepareContext(background, list[0])
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, row := range rows {
			if _, err := insert.Exec(row...); err != nil {
				return err
			}
		}
		for _, values := range [][]any{{int64(-1 << 63), 5}, {0, nil}} {
			if err := drain(conn.QueryContext(background, list[1], values...)); err != nil {
				return err
			}
		}
		count, err := conn.PrepareContext(background, list[2])
		if err != nil {
			return err
		}
		defer count.Close()
		for range 2 {
			if err := drain(count.Query()); err != nil {
				return err
			}
		}
		_ = drain(conn.QueryContext(background, list[3], 1))
		_ = drain(conn.QueryContext(background, list[4], 1))
		return nil
	})
}

func multi() error {
	return with("multi", func(conn *sql.Conn) error {
		for _, statement := range statements["multi"] {
			_ = drain(conn.QueryContext(background, statement))
		}
		return nil
	}, "multiStatements=true")
}

func local() error {
	mysql.RegisterLocalFile(file)
	return with("local", func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(background, statements["local"][0]); err != nil {
			return err
		}
		return each(conn, statements["local"][1:])
	})
}

func unbuffered() error {
	return with("unbuffered", func(conn *sql.Conn) error {
		return each(conn, []string{"SELECT * FROM many"})
	})
}

func compression() error {
	return with("compression", func(conn *sql.Conn) error {
		list := []string{"SELECT name FROM t WHERE id = 1", "SELECT * FROM many", ofLength(100000)}
		if err := each(conn, list); err != nil {
			return err
		}
		return drain(conn.QueryContext(background, "SELECT name FROM t WHERE id = ?", 3))
	}, "compress=true")
}

func tls() error {
	return with("tls", func(conn *sql.Conn) error {
		if err := each(conn, []string{"SELECT name FROM t WHERE id = 1"}); err != nil {
			return err
		}
		return drain(conn.QueryContext(background, "SELECT name FROM t WHERE id = ?", 3))
	})
}

func largeRequests() error {
	return with("large", func(conn *sql.Conn) error {
		for _, length := range large {
			if err := each(conn, []string{ofLength(length)}); err != nil {
				return err
			}
		}
		return drain(conn.QueryContext(background, "SELECT LENGTH(?), MD5('')", strings.Repeat("x", 17*mib)))
	})
}

func kill() error {
	for _, how := range []string{"KILL QUERY", "KILL"} {
		err := with("kill", func(victim *sql.Conn) error {
			var number int64
			if err := victim.QueryRowContext(background, "SELECT CONNECTION_ID()").Scan(&number); err != nil {
				return err
			}
			return with("kill", func(killer *sql.Conn) error {
				done := make(chan error)
				go func() { done <- drain(victim.QueryContext(background, "SELECT SLEEP(5)")) }()
				time.Sleep(500 * time.Millisecond)
				if err := each(killer, []string{fmt.Sprintf("%s %d", how, number)}); err != nil {
					return err
				}
				<-done
				if how == "KILL" {
					return nil
				}
				return each(victim, []string{"SELECT 'still here'"})
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func failures() error {
	err := with("errors", func(conn *sql.Conn) error {
		for _, statement := range statements["errors"] {
			_ = drain(conn.QueryContext(background, statement))
		}
		return nil
	})
	for _, wrong := range [][2]string{{"wrong", client}, {"secret", "absent"}} {
		if pool, conn, err := connectAs("errors", wrong[0], wrong[1]); err == nil {
			conn.Close()
			pool.Close()
		}
	}
	return err
}

func without(reason string) func() error { return func() error { return absent(reason) } }

func main() {
	mysql.SetLogger(&mysql.NopLogger{})
	cases := map[string]func() error{
		"text": text, "prepared": prepared, "multi": multi, "local": local, "unbuffered": unbuffered,
		"compression": compression, "tls": tls, "large": largeRequests, "kill": kill, "errors": failures,
		"prepared_sql": without("it is the clients' without prepared statements"),
		"cursors":      without("go-sql-driver has no cursors of the server"),
		"change_user":  without("go-sql-driver cannot change the user of a connection"),
	}
	if err := readStatements(os.Getenv("HR_STATEMENTS")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range os.Args[1:] {
		said := map[string]string{"case": name}
		if err := cases[name](); err != nil {
			var reason absent
			if errors.As(err, &reason) {
				said["absent"] = string(reason)
			} else {
				said["failed"] = err.Error()[:min(300, len(err.Error()))]
			}
		}
		line, _ := json.Marshal(said)
		fmt.Println(string(line))
	}
}
