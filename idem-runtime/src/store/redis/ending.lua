-- What the scripts share that end a claim; it stands behind prelude.lua and in front of each of them.

-- Where `look` saw nothing and the script writes nothing.
local function nothing()
  if redis.call('EXISTS', KEYS[1]) == 1 then return {'V', ''} end
  return {'N'}
end

-- Redis 6 lets a script write into a full memory only after it has written something that needs no
-- room. `life` is the one that the record has; without a record nothing else may stand there.
local function begin(life)
  if not DECLARED and (life or redis.call('EXISTS', KEYS[1]) == 0) then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life or 1))
  end
end

-- Tells who waits for the key. The record is written by then, and stays where the user has no right
-- to the channel.
local function tell()
  redis.pcall(PUBLISH, KEYS[1], '')
end

-- Puts `record` in the place of what was seen: the higher fence and the known fingerprint stay.
local function settle(seen, record, attempts, types, life)
  begin(seen.life)
  local fence, last = sub(record, 19, 25), sub(seen.bytes, 19, 25)
  if num(fence) < num(last) then fence = last end
  local kept = fence .. attempts .. sub(record, 28, 36) .. known(seen.print, sub(record, 37, 52)) .. types
  if kept ~= sub(record, 19, HEADER) then
    record = sub(record, 1, 18) .. kept .. sub(record, HEADER + 1)
  end
  redis.call('SET', KEYS[1], record, 'PX', life)
  tell()
end
