-- Shared functions of the scripts that end a claim; inserted between prelude.lua and each of them.

-- Reply where `look` found no record and the script writes nothing.
local function nothing()
  if redis.call('EXISTS', KEYS[1]) == 1 then return {'V', ''} end
  return {'N'}
end

-- Redis 6 lets a script write into a full memory only after a write that needs no room. `life` is the
-- record's; without a record, the key must be absent.
local function begin(life)
  if not DECLARED and (life or redis.call('EXISTS', KEYS[1]) == 0) then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life or 1))
  end
end

-- Notifies the watchers of the key. The record is already written, and stays written where the user has no
-- right to the channel.
local function tell()
  redis.pcall(PUBLISH, KEYS[1], '')
end

-- The layout of a record with this journal: see `Journal::kind`.
local function layout_of(journal)
  if journal == '' then return '2' end
  local at = 1
  while at <= #journal do
    local kind, length = byte(journal, at + 4), num(sub(journal, at, at + 3))
    if not kind or kind < 97 or kind > 122 or length == 0 then return '3' end
    at = at + 4 + length
  end
  return at == #journal + 1 and '4' or '3'
end

-- Replaces the record that was seen with `record`; keeps the higher fence and the known fingerprint, and for an unknown
-- outcome the longer journal: see `settled` in transition.rs.
local function settle(seen, record, attempts, types, life)
  local layout, state = sub(record, 1, 1), sub(record, 2, 2)
  if string.find('DET', state, 1, true) == nil and (layout ~= '2' or seen.journal and state == 'U') then
    local has, own = journal(seen), layout ~= '2' and sub(record, HEADER + 1) or ''
    local later = seen.state == 'R' and seen.owner ~= sub(record, 3, 18)
    if state ~= 'R' and (#has >= #own or later) then own = has end
    record = layout_of(own) .. sub(record, 2, HEADER) .. own
  end
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
