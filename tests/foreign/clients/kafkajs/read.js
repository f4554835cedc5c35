// kafkajs reads all there is: `read.js BOOTSTRAP ISOLATIONS`, on stdin `TOPIC PARTITION COUNT` for each partition. It tells
// nobody where a partition ends: it stops when it has so many records, and waits a moment for more.
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const Snappy = require('kafkajs-snappy')
const LZ4 = require('kafkajs-lz4')
const { decompress } = require('fzstd')

CompressionCodecs[CompressionTypes.Snappy] = Snappy
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec
CompressionCodecs[CompressionTypes.ZSTD] = () => ({ decompress: async (data) => Buffer.from(decompress(data)) })

const [, , bootstrap, isolations] = process.argv
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.ERROR })
const text = (data) => (data == null ? null : data.toString('base64'))
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const patience = 60000

async function read(isolation, wanted) {
  const topics = [...new Set(wanted.map(([topic]) => topic))]
  let left = wanted.filter(([topic]) => topics.includes(topic)).reduce((sum, [, , count]) => sum + Number(count), 0)
  const consumer = kafka.consumer({
    groupId: `reader-${isolation}-${process.pid}`, readUncommitted: isolation === 'read_uncommitted', maxWaitTimeInMs: 50,
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  let failed = null
  consumer.on(consumer.events.CRASH, (event) => { failed = event.payload.error })
  await consumer.run({
    eachMessage: async ({ topic, partition, message }) => {
      left -= 1
      const headers = Object.entries(message.headers || {}).flatMap(([name, given]) =>
        (Array.isArray(given) ? given : [given]).map((one) => [name, text(one)]))
      process.stdout.write(JSON.stringify({
        isolation, topic, partition, offset: Number(message.offset), timestamp: Number(message.timestamp),
        key: text(message.key), value: text(message.value), headers,
      }) + '\n')
    },
  })
  const end = Date.now() + patience
  while (left > 0 && !failed && Date.now() < end) await sleep(50)
  await sleep(300)
  await consumer.disconnect()
  if (failed) throw failed
}

async function main() {
  const lines = require('fs').readFileSync(0, 'utf8').split('\n').filter((line) => line)
  for (const isolation of isolations.split(',')) {
    const wanted = lines.map((line) => line.split(' ')).filter(([, , , of]) => of === isolation)
    await read(isolation, wanted)
  }
}

main().catch((error) => { console.error(error); process.exit(1) })
