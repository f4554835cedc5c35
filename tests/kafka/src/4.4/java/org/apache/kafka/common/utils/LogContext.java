package org.apache.kafka.common.utils;

/** Where `LocalTieredStorage` of 4.3 looks for it, and our sources do for both releases. */
public class LogContext extends org.apache.kafka.common.utils.internals.LogContext {
    public LogContext(String prefix) {
        super(prefix);
    }

    public LogContext() {
    }
}
