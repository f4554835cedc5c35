// kafkajs reads all there is: `node read.js BOOTSTRAP ISOLATIONS`, topics on stdin. Each record is a line of JSON.
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const Snappy = require('kafkajs-snappy')
const LZ4 = require('kafkajs-lz4')
const fzstd = require('fzstd') // it only decompresses

CompressionCodecs[CompressionTypes.Snappy] = Snappy
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec
CompressionCodecs[CompressionTypes.ZSTD] = () => ({ decompress: async (data) => Buffer.from(fzstd.decompress(data)) })

// It does not tell where it is behind records that it does not give out: it is at the end after many fetches
// that bring nothing. A few, 3 at most in the corpus, come before more records: where a batch has lost its last
// records, it asks for one offset after the other.
const QUIET_FETCHES = 30
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))

function lines(isolation, { topic, partition, message }) {
  const headers = Object.entries(message.headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => [name, text(one)]))
  process.stdout.write(JSON.stringify({
    isolation, topic, partition, offset: Number(message.offset), timestamp: Number(message.timestamp),
    key: text(message.key), value: text(message.value), headers,
  }) + '\n')
}

async function read(kafka, topics, isolation) {
  const consumer = kafka.consumer({
    groupId: `kafkajs-${isolation}`, readUncommitted: isolation === 'read_uncommitted', maxWaitTimeInMs: 20,
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  let quiet = 0
  let failed = null
  consumer.on(consumer.events.CRASH, ({ payload }) => { failed = payload.error })
  consumer.on(consumer.events.FETCH, () => { quiet += 1 })
  await consumer.run({
    autoCommit: false,
    eachMessage: async (one) => { quiet = 0; lines(isolation, one) },
  })
  while (quiet < QUIET_FETCHES) {
    if (failed) throw failed
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  await consumer.disconnect()
}

async function main() {
  const topics = require('fs').readFileSync(0, 'utf8').split('\n').filter(Boolean)
  const kafka = new Kafka({ clientId: 'kafkajs', brokers: [process.argv[2]], logLevel: logLevel.ERROR })
  for (const isolation of process.argv[3].split(',')) await read(kafka, topics, isolation)
}

main().catch((error) => { console.error(error); process.exit(1) })
