package kafkalog.harness;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Subtopology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.TaskIds;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Topology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;

/**
 * A member of a streams group that only sends heartbeats, over a connection of its own: Kafka Streams without the streams.
 * Its topology reads one topic, and it owns at once what it is assigned.
 */
final class StreamsMember implements AutoCloseable {
    private static final int LEAVES = -1;
    private static final Set<Errors> COORDINATOR_STARTS =
        Set.of(Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR);

    private final Socket socket;
    private final String group;
    private final String client;
    private final String id = Uuid.randomUuid().toString();
    private final Topology topology;
    private List<TaskIds> owned = List.of();
    private int epoch = 0;
    private int correlation = 0;

    StreamsMember(String bootstrap, String group, String client, String topic) throws IOException {
        String[] place = bootstrap.split(":");
        this.socket = new Socket(place[0], Integer.parseInt(place[1]));
        this.group = group;
        this.client = client;
        this.topology = new Topology().setEpoch(0).setSubtopologies(
            List.of(new Subtopology().setSubtopologyId("0").setSourceTopics(List.of(topic))));
        poll();
    }

    /** Sends a heartbeat, and takes over the tasks of the answer. */
    void poll() throws IOException {
        var data = new StreamsGroupHeartbeatRequestData().setGroupId(group).setMemberId(id).setMemberEpoch(epoch)
            .setActiveTasks(owned).setStandbyTasks(List.of()).setWarmupTasks(List.of());
        if (epoch == 0) data.setRebalanceTimeoutMs(60_000).setProcessId(client).setTopology(topology).setClientTags(List.of());
        StreamsGroupHeartbeatResponseData answer = send(data);
        for (int i = 0; i < 100 && COORDINATOR_STARTS.contains(Errors.forCode(answer.errorCode())); i++) {
            LockSupport.parkNanos(100_000_000);
            answer = send(data);
        }
        if (answer.errorCode() != 0) throw new IllegalStateException(answer.toString());
        epoch = answer.memberEpoch();
        if (answer.activeTasks() != null)
            owned = answer.activeTasks().stream()
                .map(task -> new TaskIds().setSubtopologyId(task.subtopologyId()).setPartitions(task.partitions())).toList();
    }

    @Override
    public void close() throws IOException {
        send(new StreamsGroupHeartbeatRequestData().setGroupId(group).setMemberId(id).setMemberEpoch(LEAVES));
        socket.close();
    }

    private StreamsGroupHeartbeatResponseData send(StreamsGroupHeartbeatRequestData data) throws IOException {
        short version = ApiKeys.STREAMS_GROUP_HEARTBEAT.latestVersion();
        RequestHeader header = new RequestHeader(ApiKeys.STREAMS_GROUP_HEARTBEAT, version, client, correlation++);
        ByteBuffer request = new StreamsGroupHeartbeatRequest.Builder(data).build(version).serializeWithHeader(header);
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        out.writeInt(request.remaining());
        out.write(request.array(), request.arrayOffset() + request.position(), request.remaining());
        out.flush();
        DataInputStream in = new DataInputStream(socket.getInputStream());
        ByteBuffer response = ByteBuffer.wrap(in.readNBytes(in.readInt()));
        ResponseHeader.parse(response, header.apiKey().responseHeaderVersion(version));
        return StreamsGroupHeartbeatResponse.parse(new ByteBufferAccessor(response), version).data();
    }
}
