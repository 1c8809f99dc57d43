-- Sets the time since the last delivery or extension of an entry, unless it is settled or trimmed.
--
-- KEYS[1]  stream of the messages
-- ARGV[1]  group
-- ARGV[2]  consumer that holds it
-- ARGV[3]  id of the entry
-- ARGV[4]  milliseconds
--
-- Returns whether it is pending, and whether it is in the stream.
--
-- An error is returned, because Redis 6 wraps one that is raised, so that its code (`NOGROUP`, `READONLY`) is lost.

local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if pending.err then
    return pending
end
local is_there = #redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])
-- A trimmed entry is not claimed: since Redis 7 that removes it from the group.
if #pending == 1 and is_there == 1 then
    local held = redis.pcall('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'IDLE', ARGV[4], 'JUSTID')
    if held.err then
        return held
    end
end
return {#pending, is_there}
