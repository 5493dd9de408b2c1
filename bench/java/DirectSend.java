import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Apache's client sending one message after the other in each of several threads.
 *
 * <p>Arguments: name server, topic, threads, seconds, bytes of a body. For every line that comes in it does so once, and
 * tells how many were stored.
 */
public final class DirectSend {
    public static void main(String[] arguments) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            // The client's threads would live on.
            Runtime.getRuntime().halt(1);
        });
        DefaultMQProducer producer = new DefaultMQProducer("bench-java-producer");
        producer.setNamesrvAddr(arguments[0]);
        // Long: the first ones of many threads wait for Java's class loader.
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(60_000);
        producer.start();
        int count = Integer.parseInt(arguments[2]);
        double seconds = Double.parseDouble(arguments[3]);
        byte[] body = new byte[Integer.parseInt(arguments[4])];
        Arrays.fill(body, (byte) 'x');
        ExecutorService threads = Executors.newFixedThreadPool(count);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            lines.nextLine();
            Duration cpu = cpu();
            long began = System.nanoTime();
            long end = began + (long) (seconds * 1e9);
            List<Future<Long>> counts = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                counts.add(threads.submit(() -> send(producer, arguments[1], body, end)));
            }
            long messages = 0;
            for (Future<Long> each : counts) {
                messages += each.get();
            }
            double passed = (System.nanoTime() - began) / 1e9;
            System.out.printf(Locale.ROOT, "{\"messages\": %d, \"seconds\": %.6f, \"cpu\": %.6f}%n",
                messages, passed, cpu().minus(cpu).toNanos() / 1e9);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static long send(DefaultMQProducer producer, String topic, byte[] body, long end) throws Exception {
        long messages = 0;
        while (System.nanoTime() < end) {
            SendStatus status = producer.send(new Message(topic, body)).getSendStatus();
            if (status != SendStatus.SEND_OK) {
                throw new IllegalStateException("a send was answered " + status);
            }
            messages++;
        }
        return messages;
    }

    private static Duration cpu() {
        return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO);
    }
}
