import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.*;
import java.lang.reflect.Field;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Apache's client and admin tool behind a pipe: one request per line in, one response per line out, both JSON.
 *
 * <p>Argument: the name server. Names are given without their namespace, which the client adds.
 */
public final class Interop {
    private final String nameServer;
    /** By compression type, for one namespace at a time, because every namespace needs its own connections. */
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private String namespace = "";

    private Interop(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream responses = System.out;
        // Other output must not be mixed with the responses.
        System.setOut(System.err);
        Interop interop = new Interop(arguments[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject response = new JSONObject();
            try {
                response.put("value", interop.handle(JSONObject.parseObject(line)));
            } catch (Throwable failure) {
                response.put("error", failure.toString());
            }
            responses.write((response.toJSONString() + "\n").getBytes(UTF_8));
            responses.flush();
        }
        // Threads of the clients would keep the JVM running.
        Runtime.getRuntime().halt(0);
    }

    private Object handle(JSONObject request) throws Exception {
        move(request.getString("namespace"));
        switch (request.getString("verb")) {
            case "send":
                return send(request);
            case "consume":
                return consume(request);
            case "mqadmin":
                return mqadmin(request.getList("arguments", String.class));
            case "property names":
                return propertyNames();
            default:
                throw new IllegalArgumentException(request.getString("verb"));
        }
    }

    /** Send one by one or as one batch. Return the ids that the client created, the queues and the offsets. */
    private JSONArray send(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request.getString("compression"));
        List<Message> messages = new ArrayList<>();
        for (Object each : request.getJSONArray("messages")) {
            messages.add(message(request.getString("topic"), (JSONObject) each));
        }
        JSONArray results = new JSONArray();
        if (request.getBooleanValue("batch")) {
            SendResult result = producer.send(messages);
            String[] ids = result.getMsgId().split(",");
            for (int index = 0; index < ids.length; index++) {
                results.add(place(ids[index], result.getMessageQueue(), result.getQueueOffset() + index));
            }
            return results;
        }
        Integer queue = request.getInteger("queue");
        for (Message message : messages) {
            SendResult result = queue == null
                ? producer.send(message)
                : producer.send(message, (queues, ignored, wanted) -> queues.get((Integer) wanted), queue);
            results.add(place(result.getMsgId(), result.getMessageQueue(), result.getQueueOffset()));
        }
        return results;
    }

    private DefaultMQProducer producer(String compression) throws Exception {
        DefaultMQProducer producer = producers.get(compression);
        if (producer == null) {
            producer = new DefaultMQProducer("java-producer-" + compression);
            settle(producer);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setCompressType(CompressionType.of(compression));
            producer.start();
            producers.put(compression, producer);
        }
        return producer;
    }

    private void settle(ClientConfig client) {
        client.setNamesrvAddr(nameServer);
        client.setNamespace(namespace);
        client.setInstanceName(namespace);
    }

    private void move(String wanted) throws InterruptedException {
        if (wanted != null && !wanted.equals(namespace)) {
            impatiently(() -> producers.values().forEach(DefaultMQProducer::shutdown));
            producers.clear();
            namespace = wanted;
        }
    }

    private static Message message(String topic, JSONObject given) {
        Message message = new Message(topic, Base64.getDecoder().decode(given.getString("body")));
        if (given.containsKey("keys")) {
            message.setKeys(given.getList("keys", String.class));
        }
        if (given.containsKey("tag")) {
            message.setTags(given.getString("tag"));
        }
        if (given.containsKey("delayLevel")) {
            message.setDelayTimeLevel(given.getIntValue("delayLevel"));
        }
        if (given.containsKey("delayMs")) {
            message.setDelayTimeMs(given.getLongValue("delayMs"));
        }
        if (given.containsKey("id")) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, given.getString("id"));
        }
        JSONObject properties = given.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        return message;
    }

    private static JSONObject place(String id, MessageQueue queue, long offset) {
        return JSONObject.of("id", id, "queue", queue.getBrokerName() + ":" + queue.getQueueId(), "offset", offset);
    }

    /**
     * Consume in queue order as a member of a group, until enough messages have arrived or the time is up, and stop.
     * Then exactly the offsets of the consumed messages are committed on the brokers.
     */
    private JSONArray consume(JSONObject request) throws Exception {
        int most = request.getIntValue("most");
        List<MessageExt> consumed = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch enough = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        settle(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(request.getString("topic"), request.getString("tags"));
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            synchronized (consumed) {
                if (consumed.size() >= most) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                consumed.addAll(messages);
                if (consumed.size() >= most) {
                    enough.countDown();
                }
                return ConsumeOrderlyStatus.SUCCESS;
            }
        });
        consumer.start();
        enough.await(request.getLongValue("waitMs"), TimeUnit.MILLISECONDS);
        // The offset of the last message is recorded just after its listener has returned.
        Thread.sleep(100);
        impatiently(consumer::shutdown);
        JSONArray json = new JSONArray();
        consumed.forEach(message -> json.add(toJson(message)));
        return json;
    }

    private static JSONObject toJson(MessageExt message) {
        MessageQueue queue = new MessageQueue(message.getTopic(), message.getBrokerName(), message.getQueueId());
        JSONObject json = place(message.getMsgId(), queue, message.getQueueOffset());
        json.put("topic", message.getTopic());
        json.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        json.put("keys", message.getKeys());
        json.put("tag", message.getTags());
        json.put("sysFlag", message.getSysFlag());
        json.put("properties", message.getProperties());
        return json;
    }

    /** Return the output of a command of the admin tool. It reports failures only by a stack trace on stderr. */
    private String mqadmin(List<String> arguments) throws InterruptedException {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream failures = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(printed, true, UTF_8));
        System.setErr(new PrintStream(failures, true, UTF_8));
        List<String> all = new ArrayList<>(arguments);
        Collections.addAll(all, "-n", nameServer);
        impatiently(() -> MQAdminStartup.main0(all.toArray(new String[0]), null));
        System.setOut(out);
        System.setErr(err);
        if (failures.toString(UTF_8).contains("Exception")) {
            throw new IllegalStateException(failures.toString(UTF_8));
        }
        return printed.toString(UTF_8);
    }

    /** Run work that ends with the shutdown of a client, without waiting for its threads, which may take 3 s. */
    private static void impatiently(Runnable work) throws InterruptedException {
        Thread thread = new Thread(work);
        thread.start();
        while (thread.isAlive()) {
            thread.join(20);
            for (StackTraceElement frame : thread.getStackTrace()) {
                if (frame.getClassName().equals(ServiceThread.class.getName()) && frame.getMethodName().equals("shutdown")) {
                    thread.interrupt();
                }
            }
        }
    }

    /** Return every property name that is reserved in this release of RocketMQ. */
    private static List<String> propertyNames() throws IllegalAccessException {
        List<String> names = new ArrayList<>(MessageConst.STRING_HASH_SET);
        for (Field field : MessageConst.class.getFields()) {
            if (field.getName().startsWith("PROPERTY_")) {
                names.add((String) field.get(null));
            }
        }
        return names;
    }
}
