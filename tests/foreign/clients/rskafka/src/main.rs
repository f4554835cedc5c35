//! rskafka: no idempotence, no transactions; each call of `produce` is a batch. Headers have values, and one for each name.
use chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use std::collections::BTreeMap;

fn record(key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&str, &str)], ms: i64) -> Record {
    Record {
        key: key.map(|k| k.to_vec()),
        value: value.map(|v| v.to_vec()),
        headers: headers.iter().map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect::<BTreeMap<_, _>>(),
        timestamp: DateTime::<Utc>::from_timestamp_millis(ms).unwrap(),
    }
}

async fn write(client: &Client, topic: &str, records: Vec<Record>, compression: Compression) {
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await.unwrap();
    partition.produce(records, compression).await.unwrap();
}

#[tokio::main]
async fn main() {
    let bootstrap = std::env::args().nth(1).unwrap();
    let client = ClientBuilder::new(vec![bootstrap]).build().await.unwrap();
    let now = 1_700_000_000_000;
    let every: Vec<u8> = (0..=255).collect();
    let big = "big ".repeat(10_000);
    let plain: Vec<(Option<&[u8]>, Option<&[u8]>)> = vec![
        (Some(b"key"), Some(b"value")),
        (None, Some(b"no key")),
        (Some(b"tombstone"), None),
        (Some(b""), Some(b"")),
        (None, None),
        (Some("schlüssel".as_bytes()), Some("Größe \u{1f600}".as_bytes())),
        (Some(&every), Some(&[0, 255])),
    ];
    let plain = plain.iter().map(|(k, v)| record(*k, *v, &[], now)).collect();
    write(&client, "plain", plain, Compression::NoCompression).await;
    let headers: [&[(&str, &str)]; 3] = [&[("one", "1")], &[("empty", ""), ("", "no name")], &[("twice", "2"), ("ünï", "ü")]];
    let some = headers.iter().map(|h| record(None, Some(b"with headers"), h, now)).collect();
    write(&client, "headers", some, Compression::NoCompression).await;
    let times = [1_600_000_000_000, 1, 4_102_444_800_000, 1_599_999_999_999, 1_700_000_000_000, -5];
    let times = times.iter().map(|t| record(None, Some(t.to_string().as_bytes()), &[], *t)).collect();
    write(&client, "times", times, Compression::NoCompression).await;
    let many = (0..300).map(|n| record(Some((n % 7).to_string().as_bytes()), Some(n.to_string().as_bytes()), &[], now)).collect();
    write(&client, "many", many, Compression::NoCompression).await;
    write(&client, "big", vec![record(None, Some(big.as_bytes()), &[], now)], Compression::NoCompression).await;
    for (topic, codec) in [
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ] {
        let mut packed: Vec<Record> = (0..20)
            .map(|n| {
                let value = format!("value {n} ").repeat(5);
                record(Some(n.to_string().as_bytes()), Some(value.as_bytes()), headers[n % 3], now + n as i64)
            })
            .collect();
        packed.push(record(None, Some(big.as_bytes()), &[], now));
        write(&client, topic, packed, codec).await;
    }
}
