//! Functions that only compute, and words that are in front of a parenthesis without being a function.

use super::lexer::{Kind, Lexer};
use std::collections::HashSet;
use std::sync::LazyLock;

/// Whether a name in front of a parenthesis changes nothing: a stored function may, so what is not known does not count.
pub fn only_computes(name: &[u8]) -> bool {
    let mut lower = [0; 40];
    let Some(lower) = lower.get_mut(..name.len()) else { return false };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let Ok(name) = std::str::from_utf8(lower) else { return false };
    KNOWN.contains(name) || name.starts_with("st_")
}

/// Why a statement's answers may differ on the same data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Varying {
    /// Only because it reads the number of its own connection.
    Connection,
    /// It reads the clock, chance, or what is peculiar to a server.
    Moment,
}

/// Whether a statement's answers may differ from server to server or from one moment to the next, and why.
#[must_use]
pub fn varying(text: &[u8]) -> Option<Varying> {
    let mut lexer = Lexer::new(text);
    let mut function = None;
    let mut shows = false;
    let mut found = None;
    while let Some(token) = lexer.next() {
        let word = &text[token.start..token.end];
        let is_of = |words: &str| {
            words.split_ascii_whitespace().any(|each| word.eq_ignore_ascii_case(each.as_bytes()))
        };
        match token.kind {
            Kind::Open => found = found.max(function),
            Kind::Variable if is_of(OWN_NUMBER) => found = found.max(Some(Varying::Connection)),
            Kind::Variable if word.starts_with(b"@@") => return Some(Varying::Moment),
            Kind::Word if is_of(VARYING_WORDS) || shows && is_of(SHOWN_STATE) => {
                return Some(Varying::Moment);
            }
            _ => {}
        }
        shows |= token.kind == Kind::Word && is_of("show");
        function = match token.kind {
            Kind::Word if is_of(OWN_NUMBER) => Some(Varying::Connection),
            Kind::Word if is_of(VARYING) => Some(Varying::Moment),
            _ => None,
        };
    }
    found
}

/// What gives a connection's own number.
const OWN_NUMBER: &str = "connection_id ps_current_thread_id @@pseudo_thread_id @@session.pseudo_thread_id";

const VARYING: &str = "uuid uuid_short sys_guid rand random_bytes now sysdate curdate curtime unix_timestamp localtime \
    localtimestamp utc_date utc_time utc_timestamp version user current_user \
    session_user system_user";

const VARYING_WORDS: &str = "current_timestamp current_date current_time utc_timestamp utc_date utc_time current_user \
    performance_schema processlist";

const SHOWN_STATE: &str =
    "status variables processlist engine master slave replica replicas binary open profile profiles";

static KNOWN: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let groups = [WORDS, TYPES, AGGREGATES, NUMBERS, STRINGS, TIMES, JSON, OTHERS, PLACES];
    groups.iter().flat_map(|group| group.split_ascii_whitespace()).collect()
});

const WORDS: &str = "in values value and or not xor on by as is all any some from join when then else like rlike regexp over \
    where union using exists select having between interval except intersect index key partition row lateral case rows \
    distinct limit offset with columns path div mod binary sounds escape straight_join distinctrow table primary fulltext \
    match against if window rollup grouping end return";

const TYPES: &str = "char varchar decimal numeric dec fixed float double signed unsigned int integer bigint smallint tinyint \
    mediumint datetime timestamp time date year varbinary bit nchar nvarchar enum set";

const AGGREGATES: &str = "avg bit_and bit_or bit_xor count group_concat json_arrayagg json_objectagg max min std stddev \
    stddev_pop stddev_samp sum var_pop var_samp variance any_value cume_dist dense_rank first_value lag last_value lead \
    nth_value ntile percent_rank rank row_number median percentile_cont percentile_disc";

const NUMBERS: &str = "abs acos asin atan atan2 ceil ceiling conv cos cot crc32 crc32c degrees exp floor ln log log10 log2 \
    pi pow power radians rand round sign sin sqrt tan truncate greatest least bit_count oct hex unhex bin format \
    isnull ifnull nullif coalesce nvl nvl2 decode_oracle elt field find_in_set to_number interval";

const STRINGS: &str = "ascii bit_length char_length character_length chr concat concat_operator_oracle concat_ws export_set \
    from_base64 insert instr lcase left length lengthb locate lower lpad ltrim make_set mid natural_sort_key octet_length \
    ord position quote regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right rpad rtrim \
    sformat soundex space strcmp substr substring substring_index to_base64 to_char trim trim_oracle ucase upper \
    weight_string convert cast compress uncompress uncompressed_length md5 sha sha1 sha2 aes_encrypt aes_decrypt \
    des_encrypt des_decrypt encode decode encrypt password old_password random_bytes extractvalue updatexml \
    statement_digest statement_digest_text kdf";

const TIMES: &str = "adddate addtime add_months convert_tz curdate current_date current_time current_timestamp curtime date_add \
    date_format date_sub datediff day dayname dayofmonth dayofweek dayofyear extract from_days from_unixtime get_format \
    hour last_day localtime localtimestamp makedate maketime microsecond minute month monthname now period_add period_diff \
    quarter sec_to_time second str_to_date subdate subtime sysdate time_format time_to_sec timediff timestampadd \
    timestampdiff to_days to_seconds unix_timestamp utc_date utc_time utc_timestamp week weekday weekofyear yearweek";

const JSON: &str = "json_array json_array_append json_array_insert json_array_intersect json_compact json_contains \
    json_contains_path json_depth json_detailed json_equals json_exists json_extract json_insert json_keys json_length \
    json_loose json_merge json_merge_patch json_merge_preserve json_normalize json_object json_object_filter_keys \
    json_object_to_array json_overlaps json_pretty json_query json_quote json_remove json_replace json_schema_valid \
    json_schema_validation_report json_search json_set json_storage_free json_storage_size json_table json_type \
    json_unquote json_valid json_value member of";

const OTHERS: &str = "benchmark charset coercibility collation connection_id current_role current_user database schema \
    session_user system_user user version found_rows row_count last_insert_id lastval default uuid uuid_short sys_guid \
    uuid_to_bin bin_to_uuid is_uuid inet_aton inet_ntoa inet6_aton inet6_ntoa is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6 \
    name_const sleep is_free_lock is_used_lock load_file format_bytes format_pico_time ps_current_thread_id ps_thread_id \
    roles_graphml can_access_column can_access_database can_access_table can_access_view icu_version gtid_subset \
    gtid_subtract validate_password_strength binlog_gtid_pos decode_histogram column_check column_create column_exists \
    column_get column_json column_list vec_distance vec_distance_cosine vec_distance_euclidean vec_fromtext vec_totext \
    string_to_vector vector_to_string vector_dim to_vector from_vector distance";

const PLACES: &str = "area asbinary astext aswkb aswkt boundary buffer centroid contains convexhull crosses dimension disjoint \
    endpoint envelope equals exteriorring geomcollfromtext geometrycollection geometryn geometrytype geomfromtext glength \
    interiorringn intersects isclosed isempty isring issimple linefromtext linestring mbrcontains mbrcoveredby mbrcovers \
    mbrdisjoint mbrequal mbrequals mbrintersects mbroverlaps mbrtouches mbrwithin multilinestring multipoint multipolygon \
    numgeometries numinteriorrings numpoints overlaps point pointfromtext pointn pointonsurface polyfromtext polygon \
    relate srid startpoint touches within x y";

#[cfg(test)]
mod tests {
    use super::{Varying, varying};

    #[test]
    fn clocks_and_chance_vary() {
        for text in [
            "SELECT UUID()",
            "select a from t where at > now() - interval 1 day",
            "SELECT CURRENT_TIMESTAMP",
            "select @@hostname",
            "SHOW GLOBAL STATUS LIKE 'Threads%'",
            "select connection_id(), now()",
            "select @@pseudo_thread_id, rand()",
        ] {
            assert_eq!(varying(text.as_bytes()), Some(Varying::Moment), "{text}");
        }
        for text in [
            "select connection_id ( )",
            "delete from t where owner = CONNECTION_ID()",
            "select @@pseudo_thread_id",
        ] {
            assert_eq!(varying(text.as_bytes()), Some(Varying::Connection), "{text}");
        }
        for text in [
            "select user, version, rand from t",
            "select 'now()'",
            "show tables",
            "select @now",
            "select `now` from t",
        ] {
            assert_eq!(varying(text.as_bytes()), None, "{text}");
        }
    }
}
