-- Reads a copy and its life atomically, without a write.
--
-- KEYS[1]  the copy
--
-- Returns {'N'} no copy; {'D', …}, {'G', …} a copy, see `answer`
local seen, refusal = look(MOST + 1)
if refusal then return refusal end
if not seen then return {'N'} end
return answer(seen)
