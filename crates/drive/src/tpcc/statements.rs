//! All statements of the five transactions. Every connection prepares each of them once.
//!
//! Sums of money are integers here, in hundredths, and become exact decimals in the server: with a text
//! parameter it would use floating point.

use mysql::request::{Statement, Type};

macro_rules! statements {
    ($($name:ident($($kind:ident),*) $sql:literal)*) => {
        /// A statement; its number is its index in `all`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Sql { $($name),* }

        /// Every statement in the order of `Sql`.
        pub fn all() -> Result<Vec<Statement>, String> {
            [$(($sql, &[$(Type::$kind),*] as &[Type])),*]
                .into_iter()
                .map(|(sql, types)| Statement::new(sql, types))
                .collect()
        }
    };
}

statements! {
    // New-Order
    LockDistrict(Int, Int)
        "SELECT d_next_o_id, d_tax FROM tpcc_district WHERE d_w_id = ? AND d_id = ? FOR UPDATE"
    TakeOrderNumber(Int, Int)
        "UPDATE tpcc_district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?"
    LockStock(Int, Int, Int)
        "SELECT s_quantity, ELT(?, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, \
         s_dist_08, s_dist_09, s_dist_10), s_data FROM tpcc_stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE"
    TakeStock(Int, Int, Int, Int, Int)
        "UPDATE tpcc_stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, \
         s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?"
    CustomerOfOrder(Int, Int, Int)
        "SELECT c_discount, c_last, c_credit, w_tax FROM tpcc_customer, tpcc_warehouse \
         WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? AND w_id = c_w_id"
    InsertOrder(Int, Int, Int, Int, Int, Int)
        "INSERT INTO tpcc_orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local) \
         VALUES (?, ?, ?, ?, NOW(), NULL, ?, ?)"
    InsertNewOrder(Int, Int, Int)
        "INSERT INTO tpcc_new_order (no_o_id, no_d_id, no_w_id) VALUES (?, ?, ?)"
    Item(Int)
        "SELECT i_price, i_name, i_data FROM tpcc_item WHERE i_id = ?"
    InsertOrderLine(Int, Int, Int, Int, Int, Int, Int, Int, Text)
        "INSERT INTO tpcc_order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d, \
         ol_quantity, ol_amount, ol_dist_info) VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ? * 0.01, ?)"

    // Payment
    PayWarehouse(Int, Int)
        "UPDATE tpcc_warehouse SET w_ytd = w_ytd + ? * 0.01 WHERE w_id = ?"
    PayDistrict(Int, Int, Int)
        "UPDATE tpcc_district SET d_ytd = d_ytd + ? * 0.01 WHERE d_w_id = ? AND d_id = ?"
    CustomersByName(Int, Int, Text)
        "SELECT c_id FROM tpcc_customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first"
    LockCustomer(Int, Int, Int)
        "SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, \
         c_since, c_credit_lim, c_discount, c_balance FROM tpcc_customer \
         WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE"
    DataOfCustomer(Int, Int, Int)
        "SELECT c_data FROM tpcc_customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE"
    PayCustomer(Int, Int, Int, Int, Int)
        "UPDATE tpcc_customer SET c_balance = c_balance - ? * 0.01, c_ytd_payment = c_ytd_payment + ? * 0.01, \
         c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?"
    PayBadCustomer(Int, Int, Text, Int, Int, Int)
        "UPDATE tpcc_customer SET c_balance = c_balance - ? * 0.01, c_ytd_payment = c_ytd_payment + ? * 0.01, \
         c_payment_cnt = c_payment_cnt + 1, c_data = ? WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?"
    NamesOfPlace(Int, Int)
        "SELECT w_name, d_name, w_street_1, w_street_2, w_city, w_state, w_zip, d_street_1, d_street_2, d_city, \
         d_state, d_zip FROM tpcc_warehouse, tpcc_district WHERE d_w_id = ? AND d_id = ? AND w_id = d_w_id"
    InsertHistory(Int, Int, Int, Int, Int, Int, Text)
        "INSERT INTO tpcc_history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
         VALUES (?, ?, ?, ?, ?, NOW(), ? * 0.01, ?)"

    // Order-Status; it also asks for the customers of a name.
    StateOfCustomer(Int, Int, Int)
        "SELECT c_balance, c_first, c_middle, c_last FROM tpcc_customer \
         WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?"
    LastOrder(Int, Int, Int)
        "SELECT o_id, o_entry_d, o_carrier_id FROM tpcc_orders \
         WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1"
    LinesOfOrder(Int, Int, Int)
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM tpcc_order_line \
         WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?"

    // Delivery. Its reads lock the rows that it changes later.
    OldestNewOrder(Int, Int)
        "SELECT no_o_id FROM tpcc_new_order WHERE no_w_id = ? AND no_d_id = ? \
         ORDER BY no_o_id LIMIT 1 FOR UPDATE"
    DeleteNewOrder(Int, Int, Int)
        "DELETE FROM tpcc_new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?"
    LockOrder(Int, Int, Int)
        "SELECT o_c_id FROM tpcc_orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ? FOR UPDATE"
    DeliverOrder(Int, Int, Int, Int)
        "UPDATE tpcc_orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?"
    DeliverLines(Int, Int, Int)
        "UPDATE tpcc_order_line SET ol_delivery_d = NOW() WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?"
    AmountOfOrder(Int, Int, Int)
        "SELECT SUM(ol_amount) FROM tpcc_order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ? FOR UPDATE"
    DeliverToCustomer(Int, Int, Int, Int)
        "UPDATE tpcc_customer SET c_balance = c_balance + ? * 0.01, c_delivery_cnt = c_delivery_cnt + 1 \
         WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?"

    // Stock-Level
    NextOrderNumber(Int, Int)
        "SELECT d_next_o_id FROM tpcc_district WHERE d_w_id = ? AND d_id = ?"
    LowStock(Int, Int, Int, Int, Int)
        "SELECT COUNT(DISTINCT s_i_id) FROM tpcc_order_line, tpcc_stock WHERE ol_w_id = ? AND ol_d_id = ? \
         AND ol_o_id >= ? AND ol_o_id < ? AND s_w_id = ol_w_id AND s_i_id = ol_i_id AND s_quantity < ?"
}

#[cfg(test)]
mod tests {
    use super::{Sql, all};

    #[test]
    fn a_statement_stands_where_its_name_says() {
        let statements = all().unwrap();
        assert!(statements[Sql::LockDistrict as usize].sql().contains("d_next_o_id, d_tax"));
        assert!(statements[Sql::LowStock as usize].sql().contains("DISTINCT"));
        assert_eq!(statements.len(), Sql::LowStock as usize + 1);
    }
}
