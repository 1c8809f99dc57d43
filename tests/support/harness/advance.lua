-- Makes every key under a prefix older.
-- ARGV: pattern (glob), age (ms).  Returns the number of keys that had a ttl.
-- Atomic: no client sees some keys moved and others not. Keys without a ttl stay as they are.
local cursor, keys = '0', {}
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do keys[key] = true end      -- SCAN may return a key twice
until cursor == '0'
local age, moved = tonumber(ARGV[2]), 0
for key in pairs(keys) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    moved = moved + 1
    if left <= age then redis.call('DEL', key) else redis.call('PEXPIRE', key, string.format('%.0f', left - age)) end
  end
end
return moved
