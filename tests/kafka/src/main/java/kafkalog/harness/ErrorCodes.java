package kafkalog.harness;

import org.apache.kafka.common.protocol.Errors;

/** Prints the name and the number of every error code of the protocol. */
public final class ErrorCodes {
    private ErrorCodes() {
    }

    public static void main(String[] argv) {
        for (Errors error : Errors.values()) {
            System.out.println(error.name() + " " + error.code());
        }
    }
}
