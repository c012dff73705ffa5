// Asks Java's own assignors what they assign: reads cases (JSON) from standard input, writes them with their answers.
// How it is run and what it is for: README.md.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assign {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        JsonNode cases = mapper.readTree(System.in);
        for (JsonNode one : cases) {
            Map<String, Subscription> members = new HashMap<>(); // as ConsumerCoordinator collects them
            for (JsonNode member : one.get("members")) {
                Subscription subscription = subscription(member);
                members.put(member.get("id").asText(), subscription);
                if (one.path("with_bytes").asBoolean()) {
                    ByteBuffer bytes = ConsumerProtocol.serializeSubscription(subscription);
                    ((ObjectNode) member).put("subscription", hex(bytes));
                    if (subscription.userData() != null)
                        subscription.userData().rewind();
                }
            }
            Map<String, Assignment> answer;
            try {
                answer = assignor(one.get("assignor").asText())
                    .assign(cluster(one), new GroupSubscription(members)).groupAssignment();
            } catch (RuntimeException fault) { // a former owner that takes no part in what moves: NullPointerException
                ((ObjectNode) one).put("fault", fault.toString());
                continue;
            }
            ObjectNode found = ((ObjectNode) one).putObject("assignment");
            for (Map.Entry<String, Assignment> each : new TreeMap<>(answer).entrySet()) {
                ArrayNode partitions = found.putArray(each.getKey());
                TreeSet<String> names = new TreeSet<>();
                for (TopicPartition partition : each.getValue().partitions())
                    names.add(partition.topic() + "-" + partition.partition());
                names.forEach(partitions::add);
            }
        }
        System.out.println(mapper.writeValueAsString(cases));
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        for (ConsumerPartitionAssignor each : List.of(
                new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(), new CooperativeStickyAssignor()))
            if (each.name().equals(name))
                return each;
        throw new IllegalArgumentException(name);
    }

    private static Subscription subscription(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.path("owned").forEach(pair -> owned.add(new TopicPartition(pair.get(0).asText(), pair.get(1).asInt())));
        ByteBuffer userData = member.has("user_data")
            ? ByteBuffer.wrap(HexFormat.of().parseHex(member.get("user_data").asText())) : null;
        Optional<String> rack = Optional.ofNullable(member.path("rack").asText(null));
        Subscription found = new Subscription(topics, userData, owned, member.path("generation").asInt(-1), rack);
        if (member.has("instance"))
            found.setGroupInstanceId(Optional.of(member.get("instance").asText()));
        return found;
    }

    private static Cluster cluster(JsonNode one) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        one.get("topics").fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks)
                    replicas.add(nodes.computeIfAbsent(rack.asText(), name -> new Node(nodes.size(), "host", 1, name)));
                if (replicas.isEmpty())
                    replicas.add(nodes.computeIfAbsent("", name -> new Node(nodes.size(), "host", 1)));
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), number++, all[0], all, all));
            }
        });
        Set<String> none = new HashSet<>();
        return new Cluster("cluster", nodes.values(), partitions, none, none);
    }

    private static String hex(ByteBuffer bytes) {
        byte[] data = new byte[bytes.remaining()];
        bytes.get(data);
        return HexFormat.of().formatHex(data);
    }
}
