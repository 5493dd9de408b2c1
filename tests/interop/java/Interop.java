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
 * Apache's own client and admin tool behind a pipe: a request per line in, an answer per line out, both JSON.
 *
 * <p>Argument: the name server. Names are given without their namespace: the client adds it, as it does for anybody.
 */
public final class Interop {
    private final String nameServer;
    /** By their compression; of one namespace at a time, since every namespace needs connections of its own. */
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private String namespace = "";

    private Interop(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        // Whatever else is printed must not get between the answers.
        System.setOut(System.err);
        Interop interop = new Interop(arguments[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject answer = new JSONObject();
            try {
                answer.put("value", interop.answer(JSONObject.parseObject(line)));
            } catch (Throwable failure) {
                answer.put("error", failure.toString());
            }
            answers.write((answer.toJSONString() + "\n").getBytes(UTF_8));
            answers.flush();
        }
        // The clients' threads would live on.
        Runtime.getRuntime().halt(0);
    }

    private Object answer(JSONObject request) throws Exception {
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

    /** Send one by one, or as one batch; the ids that the client made, and where the messages came to lie. */
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
     * Consume in the order of each queue, as a member of a group, until there were so many messages or the time is up,
     * and leave: the offsets of what was consumed, and of no more, are on the brokers then.
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
        // The last message's offset is noted just after its listener returned.
        Thread.sleep(100);
        impatiently(consumer::shutdown);
        JSONArray told = new JSONArray();
        consumed.forEach(message -> told.add(told(message)));
        return told;
    }

    private static JSONObject told(MessageExt message) {
        MessageQueue queue = new MessageQueue(message.getTopic(), message.getBrokerName(), message.getQueueId());
        JSONObject told = place(message.getMsgId(), queue, message.getQueueOffset());
        told.put("topic", message.getTopic());
        told.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        told.put("keys", message.getKeys());
        told.put("tag", message.getTags());
        told.put("sysFlag", message.getSysFlag());
        told.put("properties", message.getProperties());
        return told;
    }

    /** What a command of the admin tool prints; it tells of a failure by a stack trace on the other stream only. */
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

    /** Do what ends with a client's shutdown, but do not wait for its threads: one of them looks up every 3 s only. */
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

    /** Every name that this release of RocketMQ gives a meaning of its own to. */
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
