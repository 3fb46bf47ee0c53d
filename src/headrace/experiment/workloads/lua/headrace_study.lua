-- The write mix of the founding study: an insert, a select and an update by key, each its own transaction.
-- Built upon sysbench's oltp_common.lua: same tables, same options.

require("oltp_common")

sysbench.cmdline.options.point_selects = {"Number of point SELECT queries per event", 1}
sysbench.cmdline.options.index_updates = {"Number of UPDATE index queries per event", 1}

function prepare_statements()
   prepare_for_each_table("inserts")
   prepare_point_selects()
   prepare_index_updates()
end

local function execute_insert()
   local t = sysbench.rand.uniform(1, sysbench.opt.tables)
   local row = param[t].inserts

   row[1]:set(0) -- AUTO_INCREMENT gives the next id
   row[2]:set(sysbench.rand.default(1, sysbench.opt.table_size))
   row[3]:set(get_c_value())
   row[4]:set(get_pad_value())
   stmt[t].inserts:execute()
end

function event()
   execute_insert()
   execute_point_selects()
   execute_index_updates()
end
