#!/bin/sh
# The cases by MariaDB's command-line client, in C. A driver as benches/clients/spoken.py describes them.
here=$(dirname "$0")

# ACCOUNT'S-CASE PASSWORD DATABASE [OPTION ...]
client_as() {
    account=${HR_CLIENT}_$1 password=$2 database=$3
    tls=--skip-ssl
    { [ "$HR_TLS" = 1 ] || [ "$1" = tls ]; } && tls=--ssl
    shift 3
    mariadb --no-defaults -h "$HR_HOST" -P "$HR_PORT" -u "$account" --password="$password" $tls --batch --force \
        --default-character-set=utf8mb4 --max-allowed-packet=64M "$@" "$database" 2>/dev/null
}

client() {
    name=$1
    shift
    client_as "$name" secret "$HR_CLIENT" "$@"
}

# The statements of a section, each with its end.
section() {
    awk -v name="== $1" -v end="${2:-;}" -v file="$HR_FILE" '
        /^== / { if (on && text != "") print text end; on = $0 == name; text = ""; next }
        on && $0 == "%" { print text end; text = ""; next }
        on { gsub("{file}", file); text = text (text == "" ? "" : "\n") $0 }
        END { if (on && text != "") print text end }' "$here/statements.txt"
}

of_length() {
    frame="SELECT $1 AS size, MD5('')"
    printf "SELECT %s AS size, MD5('" "$1"
    head -c $(($1 - 1 - ${#frame})) /dev/zero | tr '\0' x
    printf "');\n"
}

killed() {
    client kill --skip-reconnect -e "SELECT SLEEP(5); SELECT 'still here'" >/dev/null &
    sleep 0.7
    number=$(client kill -N -e "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO = 'SELECT SLEEP(5)'")
    client kill -e "$1 $number"
    wait
}

run() {
    case $1 in
    text) section text | client text ;;
    prepared) echo 'absent the client has no prepared statements of the protocol' ;;
    prepared_sql) section prepared_sql | client prepared_sql ;;
    # With another delimiter it sends several statements at once.
    multi) { echo 'DELIMITER //'; section multi //; } | client multi ;;
    local) section local | client local --local-infile=1 ;;
    cursors) echo 'absent the client has no cursors of the server' ;;
    unbuffered) echo 'SELECT * FROM many;' | client unbuffered --quick ;;
    change_user) echo 'absent the client cannot change the user of a connection' ;;
    compression)
        { echo "SELECT name FROM t WHERE id = 1; SELECT * FROM many;"; of_length 100000; } | client compression --compress ;;
    tls) echo 'SELECT name FROM t WHERE id = 1;' | client tls ;;
    large) for length in 15728640 16777215 17825792 34603008; do of_length $length; done | client large ;;
    kill) killed 'KILL QUERY'; killed KILL ;;
    errors)
        section errors | client errors
        client_as errors wrong "$HR_CLIENT" -e 'SELECT 1'
        client_as errors secret absent -e 'SELECT 1'
        ;;
    esac
}

for name; do
    said=$(run "$name" | sed -n '/^absent /p')
    printf '{"case": "%s"%s}\n' "$name" "${said:+, \"absent\": \"${said#absent }\"}"
done
