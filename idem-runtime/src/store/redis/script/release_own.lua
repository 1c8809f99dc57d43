-- Fast path of nearly every release, run before the shared functions are defined: the stored claim is the caller's, and
-- pending, and has no journal other than one of attempts that a given one replaces. Redis before 7 takes the general
-- path, because of a full memory (see ending.lua).
--
-- Returns 1               free, the short form of {'C'}
if DECLARED and not ARGV[5] then
  local sub, call, key, kept = string.sub, redis.call, KEYS[1], ARGV[3]
  -- Numbers as strings, see complete_own.lua.
  local there = call('GETRANGE', key, '0', '56')
  local layout, state = sub(there, 1, 1), sub(there, 2, 2)
  if (layout == '2' and #there == 56 or layout == '4' and #there > 56 and kept) and (state == 'P' or state == 'W')
      and sub(there, 3, 18) == ARGV[1] then
    local high, low = string.byte(there, 26, 27)
    -- A larger number of attempts takes the general path, as does a record without a life.
    if high == 0 and low > 0 and call('PTTL', key) > 0 then
      if ARGV[2] ~= '1' then low = low - 1 end
      local free = (ARGV[4] or '2') .. 'R' .. sub(there, 3, 26) .. string.char(low) .. '\0\0\0\0'
      if ARGV[2] == '2' and low == 0 then
        -- Nothing remains: see release.lua.
        local a, b, c, d = string.byte(there, 28, 31)
        local life, rest = ((a * 256 + b) * 256 + c) * 256 + d, '\0' .. sub(there, 28, 31)
        if life < 10000 then life, rest = 10000, '\0\0\0\39\16' end
        call('SET', key, free .. rest .. string.rep('\0', 20) .. (kept or ''), 'PX', life)
      else
        -- The retain time, the fingerprint, and the types of the answers. The clock of Redis 7 stands still meanwhile,
        -- so that KEEPTTL finds the life that was there.
        call('SET', key, free .. sub(there, 32, 56) .. (kept or ''), 'KEEPTTL')
      end
      -- wait.lua marks no claim with a journal, so each end of one is notified.
      if state == 'W' or layout == '4' then redis.pcall(PUBLISH, key, '') end
      return 1
    end
  end
end
