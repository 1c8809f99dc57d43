-- Reads the header of a record and its life atomically, without a write.
--
-- KEYS[1]  the record
-- ARGV[1]  length of a header, bytes
--
-- Returns {'N'} no record; {'D', life, header}, life in milliseconds; {'V', ''} an empty string;
--         {'I'} a string without an expiry
local r = redis.call('GETRANGE', KEYS[1], 0, ARGV[1] - 1)
local life = redis.call('PTTL', KEYS[1])
if life == -2 then return {'N'} end
if r == '' then return {'V', ''} end
if life < 0 then return {'I'} end
return {'D', life, r}
