package redisstore

import "github.com/redis/go-redis/v9"

// What the scripts answer.
const (
	conflicted = 0
	applied    = 1
	already    = 2
)

// damagedJournal begins the refusal of a journal that cannot have been written by these scripts. Without it, a run whose
// head is gone would be in conflict for ever.
const damagedJournal = "AGENTDJOURNAL"

// thinnedJournal begins the refusal to append to a journal whose entries are in its archive alone.
const thinnedJournal = "AGENTDTHIN"

// appendScript appends an entry by compare-and-set. KEYS: head, list, index of the partition. ARGV: etag of the base (""
// is none), number, etag and bytes of the entry, and the run's token. A repeat of the last entry writes the same etag
// again, so that WAIT on this connection covers the entry that another one may have written.
var appendScript = redis.NewScript(`
local etag = redis.call('HGET', KEYS[1], 'etag') or ''
if etag == ARGV[3] then
  redis.call('HSET', KEYS[1], 'etag', ARGV[3])
  return 2
end
if etag ~= ARGV[1] then
  local last = redis.call('LINDEX', KEYS[2], -1) or ''
  if (string.match(last, '^%d+ (%S+)\n') or '') == etag then return 0 end
  return redis.error_reply('AGENTDJOURNAL the head and the last entry do not agree')
end
local entries = redis.call('LLEN', KEYS[2])
if entries + 1 ~= tonumber(ARGV[2]) then
  if redis.call('HGET', KEYS[1], 'thin') then return redis.error_reply('AGENTDTHIN the entries are archived') end
  return redis.error_reply('AGENTDJOURNAL entry ' .. ARGV[2] .. ' cannot follow ' .. entries .. ' entries')
end
redis.call('RPUSH', KEYS[2], ARGV[4])
redis.call('HSET', KEYS[1], 'rev', ARGV[2], 'etag', ARGV[3])
if ARGV[1] == '' then redis.call('ZADD', KEYS[3], 0, ARGV[5]) end
return 1
`)

// barrierScript checks the etag, and writes it again for WAIT. KEYS: head. ARGV: etag.
var barrierScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'etag') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'etag', ARGV[1])
return 1
`)

// purgeScript puts a tombstone in the place of a journal by compare-and-set, and removes blobs. KEYS: head, list, set of
// digests, blobs. ARGV: etag of the base, etag and bytes of the tombstone, and a digest for each blob. What the head says of an archive
// stays until that is deleted.
var purgeScript = redis.NewScript(`
local etag = redis.call('HGET', KEYS[1], 'etag')
if etag ~= ARGV[2] then
  if etag ~= ARGV[1] then return 0 end
  redis.call('UNLINK', KEYS[2])
  redis.call('RPUSH', KEYS[2], ARGV[3])
end
redis.call('HSET', KEYS[1], 'rev', 1, 'etag', ARGV[2])
redis.call('HDEL', KEYS[1], 'thin')
for i = 4, #KEYS do
  redis.call('UNLINK', KEYS[i])
  redis.call('SREM', KEYS[3], ARGV[i])
end
return 1
`)

// removeScript removes a run by compare-and-set; without a head there is nothing to do. KEYS: head, list, index of the
// partition, set of digests, blobs. ARGV: etag of the base, the run's token.
var removeScript = redis.NewScript(`
local etag = redis.call('HGET', KEYS[1], 'etag')
if not etag then return 2 end
if etag ~= ARGV[1] then return 0 end
redis.call('ZREM', KEYS[3], ARGV[2])
for i = 1, #KEYS do
  if i ~= 3 then redis.call('UNLINK', KEYS[i]) end
end
return 1
`)
