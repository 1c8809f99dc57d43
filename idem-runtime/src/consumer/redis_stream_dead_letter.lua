-- Moves an entry of a group to its dead letters, unless it is settled.
--
-- KEYS[1]  stream of the messages
-- KEYS[2]  stream of the dead letters
-- ARGV[1]  group
-- ARGV[2]  id of the entry
-- ARGV[3…] fields and values of the dead letter
--
-- Returns 1, or 0 where the entry is settled: a consumer that was stalled adds no second letter, unless it is trimmed.
--
-- Atomic. An error of XADD leaves the entry unsettled, and so delivered again; after an error within MULTI the XACK
-- would be carried out.

-- A server that lost its data has no group: the letter is all that is left of the message. So it is of an entry that
-- was trimmed: since Redis 7 the group gives it up when its consumer extends it.
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
if not pending.err and #pending == 0 and #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) > 0 then
    return 0
end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return 1
