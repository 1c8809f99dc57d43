-- Moves an entry of a group to its dead letters, if it is pending.
--
-- KEYS[1]  stream of the messages
-- KEYS[2]  stream of the dead letters
-- ARGV[1]  group
-- ARGV[2]  id of the entry
-- ARGV[3…] fields and values of the dead letter
--
-- Returns 1, or 0 where the entry is in the stream and not pending: it is settled, so that a consumer that was stalled
-- adds no second letter, or the group was created anew.
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
