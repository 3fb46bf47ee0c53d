//! Slow logs of MySQL, Percona Server and MariaDB.
