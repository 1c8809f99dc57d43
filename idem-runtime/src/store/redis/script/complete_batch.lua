-- Completes several claims of callers that complete at the same time: most of what a script costs the server is the
-- same for one and for many. Claims in any other state than the usual one are left to complete.lua, one by one.
--
-- KEYS[i]         a record; no two of them are the same, because all are read before the first one is written
-- ARGV[2 * i - 1] its finished record, ARGV[2 * i] its life, milliseconds
--
-- Returns 1 where all records are stored; else the positions, from 1 on, of the records that are not, negative where
-- there is none under the key
local pcall, sub, byte = redis.pcall, string.sub, string.byte
-- Of a value that is no string: false.
local seen, left = redis.call('MGET', unpack(KEYS)), nil
for at = 1, #KEYS do
  local there, done = seen[at], ARGV[2 * at - 1]
  local pending = there and byte(there, 2) == 87 and '2W' or '2P'
  -- As in complete_own.lua.
  -- An error of one write would end the script, after some of the others.
  if there and there == pending .. sub(done, 3, 27) .. sub(there, 28, 36) .. sub(done, 37, 56)
      and not pcall('SET', KEYS[at], done, 'PX', ARGV[2 * at]).err then
    if pending == '2W' then pcall(PUBLISH, KEYS[at], '') end
  else
    left = left or {}
    left[#left + 1] = there and at or -at
  end
end
return left or 1
