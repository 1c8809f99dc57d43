-- Marks a claim as watched, so that its end is notified. The watcher subscribes at the same time, and reads
-- the record once both are done. Runs alone, or before read.lua, which reads the result.
--
-- Nearly every claim ends without a watcher, so the fast paths publish only a marked end. A mark that is not written,
-- for want of room or of a right, or is lost, delays the watcher until its next poll.
local there = redis.call('GETRANGE', KEYS[1], '0', '56')
if #there == 56 and string.sub(there, 1, 2) == '2P' then
  local life = redis.call('PTTL', KEYS[1])
  -- Not SETRANGE or KEEPTTL, see release.lua.
  if life > 0 then redis.pcall('SET', KEYS[1], '2W' .. string.sub(there, 3), 'PX', life) end
end
