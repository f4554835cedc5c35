package org.apache.kafka.common.utils;

/** Where `kafka-shell` of 4.3 looks for it. */
public class AppInfoParser extends org.apache.kafka.common.utils.internals.AppInfoParser {
}
