-- Stores a large answer that is already under a key of its own, as a whole record, because passing it
-- through a script would cost the server several times as much.
--
-- KEYS[2]  the staged record, a name that is used only by this attempt
-- ARGV[1]  its header, 56 bytes
-- ARGV[2]  its life, milliseconds
--
-- Returns 1 stored; {'Y'} not the usual case, nothing changed: see complete.lua; {'N'} the user has no right
--         to `RENAME`
local sub = string.sub
-- As in complete_own.lua.
local there = redis.call('GETRANGE', KEYS[1], '0', '56')
local pending = string.byte(there, 2) == 87 and '2W' or '2P'
if there ~= pending .. sub(ARGV[1], 3, 27) .. sub(there, 28, 36) .. sub(ARGV[1], 37, 56) then
  return {'Y'}
end
local moved = redis.pcall('RENAME', KEYS[2], KEYS[1])
if moved.err then
  -- The `SET` of the staged record found no room, or the user lacks the right.
  if redis.call('EXISTS', KEYS[2]) == 0 then return {'Y'} end
  return {'N'}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if pending == '2W' then redis.pcall(PUBLISH, KEYS[1], '') end
return 1
