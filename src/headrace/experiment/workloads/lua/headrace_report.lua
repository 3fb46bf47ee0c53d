-- Exact reports for any OLTP script of sysbench 1.0: load this after the script.
--
-- sysbench prints rates with two decimals over intervals of unstated length; the hooks get the counts themselves and
-- the interval. One write a report: sysbench may end the reporting thread between two.

local ffi = require("ffi")

ffi.cdef[[
typedef struct { long sec; long nsec; } headrace_timespec;
int clock_gettime(int clock, headrace_timespec *now);
]]

local CLOCK_REALTIME = 0

local function report(name, stat, more)
   local now = ffi.new("headrace_timespec")
   ffi.C.clock_gettime(CLOCK_REALTIME, now)
   io.write(string.format(
      'headrace: {"report":"%s","sec":%d,"nsec":%d,"elapsed_s":%.9f,"interval_s":%.9f,"threads":%d,' ..
      '"events":%d,"reads":%d,"writes":%d,"other":%d,"errors":%d,"reconnects":%d%s}\n',
      name, tonumber(now.sec), tonumber(now.nsec), stat.time_total, stat.time_interval,
      stat.threads_running, stat.events, stat.reads, stat.writes, stat.other, stat.errors,
      stat.reconnects, more))
end

function sysbench.hooks.report_intermediate(stat)
   report("interval", stat, string.format(',"percentile_s":%.9f', stat.latency_pct))
end

function sysbench.hooks.report_cumulative(stat)
   report("final", stat, string.format(
      ',"min_s":%.9f,"avg_s":%.9f,"max_s":%.9f,"sum_s":%.9f,"percentile_s":%.9f',
      stat.latency_min, stat.latency_avg, stat.latency_max, stat.latency_sum, stat.latency_pct))
end

-- sysbench 1.1 has this option; 1.0 lost it with the old oltp test. As there, the event pays for it.
if sysbench.cmdline.options.reconnect == nil then
   sysbench.cmdline.options.reconnect =
      {"Reconnect after every N events. The default (0) is to not reconnect", 0}

   local stock_event = event
   local events = 0

   function event(thread_id)
      local result = stock_event(thread_id)
      if sysbench.opt.reconnect > 0 then
         events = events + 1
         if events % sysbench.opt.reconnect == 0 then
            -- Not con:reconnect(): built against MariaDB's client library, as Debian's is, that crashes.
            close_statements()
            con:disconnect()
            con = drv:connect()
            prepare_statements()
         end
      end
      return result
   end
end
