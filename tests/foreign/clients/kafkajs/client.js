// kafkajs, with the two packages that bring codecs it lacks; zstd only comes with packages that compile.
const { Kafka, CompressionTypes, CompressionCodecs, logLevel, Partitioners } = require('kafkajs')
const Snappy = require('kafkajs-snappy')
const LZ4 = require('kafkajs-lz4')

CompressionCodecs[CompressionTypes.Snappy] = Snappy
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec

const kafka = new Kafka({ clientId: 'kafkajs', brokers: [process.argv[2]], logLevel: logLevel.ERROR })
const options = { createPartitioner: Partitioners.DefaultPartitioner }
const big = Buffer.from('big '.repeat(10000))
const value = (number) => Buffer.from(`value ${number} `.repeat(5))
const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
const plain = [
  ['key', 'value'], [null, 'no key'], ['tombstone', null], ['', ''], [null, null],
  ['schlüssel', 'Größe \u{1f600}'], [every, Buffer.from([0, 255])],
]
// It refuses null as the value of a header.
const headers = [
  { one: '1' },
  { empty: '', '': 'no name' },
  { twice: ['1', '2'], ünï: 'ü' },
]
const times = [1600000000000, 1, 4102444800000, 1599999999999, 1700000000000]

async function write(topic, messages, compression = CompressionTypes.None, more = {}) {
  const producer = kafka.producer({ ...options, ...more })
  await producer.connect()
  await producer.send({ topic, messages, compression })
  await producer.disconnect()
}

async function main() {
  await write('plain', plain.map(([key, value]) => ({ key, value })))
  await write('headers', headers.map((some) => ({ value: 'with headers', headers: some })))
  await write('times', times.map((time) => ({ value: `${time}`, timestamp: `${time}` })))
  await write('many', Array.from({ length: 300 }, (_, i) => ({ key: `${i % 7}`, value: `${i}` })))
  await write('big', [{ value: big }])
  for (const [topic, codec] of [
    ['gzip', CompressionTypes.GZIP], ['snappy', CompressionTypes.Snappy], ['lz4', CompressionTypes.LZ4],
  ]) {
    const some = Array.from({ length: 20 }, (_, i) => ({ key: `${i}`, value: value(i), headers: headers[i % 3] }))
    await write(topic, [...some, { value: big }], codec)
  }
  const idempotent = kafka.producer({ ...options, idempotent: true, maxInFlightRequests: 1 })
  await idempotent.connect()
  for (let batch = 0; batch < 3; batch++) {
    const messages = Array.from({ length: 5 }, (_, i) => ({ value: value(batch * 5 + i) }))
    await idempotent.send({ topic: 'idempotent', messages, compression: CompressionTypes.GZIP })
  }
  await idempotent.disconnect()
  const transactional = kafka.producer({
    ...options, transactionalId: 'kafkajs', idempotent: true, maxInFlightRequests: 1,
  })
  await transactional.connect()
  for (let round = 0; round < 4; round++) {
    const transaction = await transactional.transaction()
    const messages = Array.from({ length: 3 }, (_, i) => ({ value: `${round}-${i}` }))
    await transaction.send({ topic: 'transactional', messages })
    await (round % 2 ? transaction.abort() : transaction.commit())
  }
  await transactional.disconnect()
}

main().catch((error) => { console.error(error); process.exit(1) })
