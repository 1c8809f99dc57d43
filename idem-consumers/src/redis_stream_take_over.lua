-- Takes over entries that their consumers have neither settled nor extended.
--
-- KEYS[1]  stream of the messages
-- ARGV[1]  group
-- ARGV[2]  consumer that takes them over
-- ARGV[3]  milliseconds since the last delivery or extension
-- ARGV[4]  number of entries
--
-- Returns the entries, the ids of trimmed entries, which stay in the group, and the id of the first unsettled entry of
-- the group.
--
-- An error is returned, because Redis 6 wraps one that is raised, so that its code (`NOGROUP`, `READONLY`) is lost.

local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', ARGV[4])
if pending.err then
    return pending
end
local entries, trimmed = {}, {}
for _, entry in ipairs(pending) do
    local id = entry[1]
    -- Not claimed: since Redis 7 that removes it from the group, and before it stays there without its fields.
    if #redis.call('XRANGE', KEYS[1], id, id) == 0 then
        trimmed[#trimmed + 1] = id
    else
        local claimed = redis.pcall('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], id)
        if claimed.err then
            return claimed
        end
        entries[#entries + 1] = claimed[1]
    end
end
return {entries, trimmed, redis.call('XPENDING', KEYS[1], ARGV[1])[2]}
