//! The nine tables of clause 1.3, with its column names. The tables' names have a prefix, because `drive clean`
//! drops them and a user's database may well have a table `customer`.

/// Rows of `item`.
pub const ITEMS: i64 = 100_000;
/// Districts of a warehouse.
pub const DISTRICTS: i64 = 10;
/// Customers of a district, and its orders after the load.
pub const CUSTOMERS: i64 = 3000;
/// Orders of a district that are delivered when they are loaded: the first ones.
pub const DELIVERED: i64 = 2100;
/// The largest number that the loader can certainly handle; larger than any published result.
pub const MOST_WAREHOUSES: i64 = 10_000_000;

/// All tables, each after those that it refers to.
pub const TABLES: [&str; 9] = [
    "tpcc_item",
    "tpcc_warehouse",
    "tpcc_stock",
    "tpcc_district",
    "tpcc_customer",
    "tpcc_history",
    "tpcc_orders",
    "tpcc_new_order",
    "tpcc_order_line",
];

/// Created after the load: sorted once instead of grown in random order.
pub const INDEXES: [&str; 2] = [
    "ALTER TABLE tpcc_customer ADD INDEX tpcc_customer_by_name (c_w_id, c_d_id, c_last, c_first)",
    "ALTER TABLE tpcc_orders ADD INDEX tpcc_orders_by_customer (o_w_id, o_d_id, o_c_id, o_id)",
];

/// The same bytes on every server, regardless of its default. It has the 128 characters that clause 4.3.2.2 requires.
const TABLE_OPTIONS: &str = "ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin";

/// Statements that create the tables, referenced tables first.
pub fn create_statements(foreign_keys: bool) -> Vec<String> {
    TABLES
        .iter()
        .map(|table| {
            let (columns, references) = definition(table);
            let references = if foreign_keys { references } else { "" };
            format!("CREATE TABLE {table} ({columns}{references}) {TABLE_OPTIONS}")
        })
        .collect()
}

/// Columns with the primary key, and foreign keys. Counters and sums are wider than the specification's least,
/// because without think times a warehouse gets more orders in an hour than the specification expects in a year.
fn definition(table: &str) -> (&'static str, &'static str) {
    match table {
        "tpcc_item" => (
            "i_id INT NOT NULL, i_im_id INT NOT NULL, i_name VARCHAR(24) NOT NULL, i_price DECIMAL(5,2) NOT NULL, \
             i_data VARCHAR(50) NOT NULL, PRIMARY KEY (i_id)",
            "",
        ),
        "tpcc_warehouse" => (
            "w_id INT NOT NULL, w_name VARCHAR(10) NOT NULL, w_street_1 VARCHAR(20) NOT NULL, \
             w_street_2 VARCHAR(20) NOT NULL, w_city VARCHAR(20) NOT NULL, w_state CHAR(2) NOT NULL, \
             w_zip CHAR(9) NOT NULL, w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(14,2) NOT NULL, PRIMARY KEY (w_id)",
            "",
        ),
        "tpcc_stock" => (
            "s_i_id INT NOT NULL, s_w_id INT NOT NULL, s_quantity SMALLINT NOT NULL, s_dist_01 CHAR(24) NOT NULL, \
             s_dist_02 CHAR(24) NOT NULL, s_dist_03 CHAR(24) NOT NULL, s_dist_04 CHAR(24) NOT NULL, \
             s_dist_05 CHAR(24) NOT NULL, s_dist_06 CHAR(24) NOT NULL, s_dist_07 CHAR(24) NOT NULL, \
             s_dist_08 CHAR(24) NOT NULL, s_dist_09 CHAR(24) NOT NULL, s_dist_10 CHAR(24) NOT NULL, \
             s_ytd BIGINT NOT NULL, s_order_cnt INT NOT NULL, s_remote_cnt INT NOT NULL, \
             s_data VARCHAR(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id)",
            ", FOREIGN KEY (s_w_id) REFERENCES tpcc_warehouse (w_id), \
             FOREIGN KEY (s_i_id) REFERENCES tpcc_item (i_id)",
        ),
        "tpcc_district" => (
            "d_id TINYINT NOT NULL, d_w_id INT NOT NULL, d_name VARCHAR(10) NOT NULL, \
             d_street_1 VARCHAR(20) NOT NULL, d_street_2 VARCHAR(20) NOT NULL, d_city VARCHAR(20) NOT NULL, \
             d_state CHAR(2) NOT NULL, d_zip CHAR(9) NOT NULL, d_tax DECIMAL(4,4) NOT NULL, \
             d_ytd DECIMAL(14,2) NOT NULL, d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id)",
            ", FOREIGN KEY (d_w_id) REFERENCES tpcc_warehouse (w_id)",
        ),
        "tpcc_customer" => (
            "c_id INT NOT NULL, c_d_id TINYINT NOT NULL, c_w_id INT NOT NULL, c_first VARCHAR(16) NOT NULL, \
             c_middle CHAR(2) NOT NULL, c_last VARCHAR(16) NOT NULL, c_street_1 VARCHAR(20) NOT NULL, \
             c_street_2 VARCHAR(20) NOT NULL, c_city VARCHAR(20) NOT NULL, c_state CHAR(2) NOT NULL, \
             c_zip CHAR(9) NOT NULL, c_phone CHAR(16) NOT NULL, c_since DATETIME NOT NULL, \
             c_credit CHAR(2) NOT NULL, c_credit_lim DECIMAL(12,2) NOT NULL, c_discount DECIMAL(4,4) NOT NULL, \
             c_balance DECIMAL(12,2) NOT NULL, c_ytd_payment DECIMAL(12,2) NOT NULL, \
             c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, c_data VARCHAR(500) NOT NULL, \
             PRIMARY KEY (c_w_id, c_d_id, c_id)",
            ", FOREIGN KEY (c_w_id, c_d_id) REFERENCES tpcc_district (d_w_id, d_id)",
        ),
        // It has no key in the specification. One costs little, and InnoDB would create a hidden one that replicas and
        // clusters cannot use.
        "tpcc_history" => (
            "h_id BIGINT NOT NULL AUTO_INCREMENT, h_c_id INT NOT NULL, h_c_d_id TINYINT NOT NULL, \
             h_c_w_id INT NOT NULL, h_d_id TINYINT NOT NULL, h_w_id INT NOT NULL, h_date DATETIME NOT NULL, \
             h_amount DECIMAL(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL, PRIMARY KEY (h_id)",
            ", FOREIGN KEY (h_c_w_id, h_c_d_id, h_c_id) REFERENCES tpcc_customer (c_w_id, c_d_id, c_id), \
             FOREIGN KEY (h_w_id, h_d_id) REFERENCES tpcc_district (d_w_id, d_id)",
        ),
        "tpcc_orders" => (
            "o_id INT NOT NULL, o_d_id TINYINT NOT NULL, o_w_id INT NOT NULL, o_c_id INT NOT NULL, \
             o_entry_d DATETIME NOT NULL, o_carrier_id TINYINT, o_ol_cnt TINYINT NOT NULL, \
             o_all_local TINYINT NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)",
            ", FOREIGN KEY (o_w_id, o_d_id, o_c_id) REFERENCES tpcc_customer (c_w_id, c_d_id, c_id)",
        ),
        "tpcc_new_order" => (
            "no_o_id INT NOT NULL, no_d_id TINYINT NOT NULL, no_w_id INT NOT NULL, \
             PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
            ", FOREIGN KEY (no_w_id, no_d_id, no_o_id) REFERENCES tpcc_orders (o_w_id, o_d_id, o_id)",
        ),
        "tpcc_order_line" => (
            "ol_o_id INT NOT NULL, ol_d_id TINYINT NOT NULL, ol_w_id INT NOT NULL, ol_number TINYINT NOT NULL, \
             ol_i_id INT NOT NULL, ol_supply_w_id INT NOT NULL, ol_delivery_d DATETIME, \
             ol_quantity TINYINT NOT NULL, ol_amount DECIMAL(6,2) NOT NULL, ol_dist_info CHAR(24) NOT NULL, \
             PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
            ", FOREIGN KEY (ol_w_id, ol_d_id, ol_o_id) REFERENCES tpcc_orders (o_w_id, o_d_id, o_id), \
             FOREIGN KEY (ol_supply_w_id, ol_i_id) REFERENCES tpcc_stock (s_w_id, s_i_id)",
        ),
        _ => unreachable!("{table} is not one of TABLES"),
    }
}
