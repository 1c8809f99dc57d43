-- Marks a claim: somebody waits for its end, who subscribes at the same time, and looks once both are done. It
-- stands alone, or in front of read.lua, which reads what this leaves.
--
-- Nearly every claim ends without anybody waiting for it, so its end is told only where this mark is. A
-- mark that is not made, for want of room or of a right, or is lost, costs whoever waits some time.
local there = redis.call('GETRANGE', KEYS[1], 0, 56)
if #there == 56 and string.sub(there, 1, 2) == '2P' then
  local life = redis.call('PTTL', KEYS[1])
  -- Not SETRANGE or KEEPTTL, see release.lua.
  if life > 0 then redis.pcall('SET', KEYS[1], '2W' .. string.sub(there, 3), 'PX', life) end
end
