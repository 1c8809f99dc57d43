-- Removes a copy, and tells who waits for the key.
--
-- ARGV[1]  only that of this owner, 16 bytes; an empty string for any
--
-- Returns {'C'} removed; {'S'} another's, nothing changed; {'N'} none
local seen, refusal = look(HEADER)
if refusal then return refusal end
local code = 'N'
if seen and (ARGV[1] == '' or seen.owner == ARGV[1]) then
  -- Not DEL, for which the documented rights would not do.
  redis.call('PEXPIRE', KEYS[1], 0)
  code = 'C'
elseif seen then
  code = 'S'
end
tell()
return {code}
