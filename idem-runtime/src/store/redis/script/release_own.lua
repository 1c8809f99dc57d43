-- Fast path of nearly every release, run before the shared functions are defined: no journal is given, and the stored
-- claim is the caller's, and pending. Redis before 7 takes the general path, because of a full memory (see ending.lua).
--
-- Returns 1               free, the short form of {'C'}
if DECLARED and not ARGV[3] then
  local sub = string.sub
  local there = redis.call('GETRANGE', KEYS[1], 0, 55)
  local state = sub(there, 1, 2)
  if #there == 56 and (state == '2P' or state == '2W') and sub(there, 3, 18) == ARGV[1] then
    local life, high, low = redis.call('PTTL', KEYS[1]), string.byte(there, 26, 27)
    -- A larger number of attempts takes the general path, as does a record without a life.
    if life > 0 and high == 0 and low > 0 then
      if ARGV[2] ~= '1' then low = low - 1 end
      -- The retain time, the fingerprint, and the types of the answers.
      local rest = sub(there, 32)
      if ARGV[2] == '2' and low == 0 then
        -- Nothing remains: see release.lua.
        local a, b, c, d = string.byte(there, 28, 31)
        life, rest = ((a * 256 + b) * 256 + c) * 256 + d, '\0' .. sub(there, 28, 31)
        if life < 10000 then life, rest = 10000, '\0\0\0\39\16' end
        rest = rest .. string.rep('\0', 20)
      end
      local free = '2R' .. sub(there, 3, 26) .. string.char(low) .. '\0\0\0\0' .. rest
      redis.call('SET', KEYS[1], free, 'PX', life)
      if state == '2W' then redis.pcall(PUBLISH, KEYS[1], '') end
      return 1
    end
  end
end
