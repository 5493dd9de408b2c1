import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Apache's client pulling all queues of a topic from their beginning to their end, a thread each, 32 at a time.
 *
 * <p>Arguments: name server, topic, group. For every line that comes in it does so once, and tells how long it took.
 */
public final class DirectPull {
    public static void main(String[] arguments) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            // The client's threads would live on.
            Runtime.getRuntime().halt(1);
        });
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        // Long: on a busy machine the first answer waits for the class loader.
        consumer.setMqClientApiTimeout(60_000);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(arguments[1]));
        ExecutorService threads = Executors.newFixedThreadPool(queues.size());
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            lines.nextLine();
            AtomicLong bytes = new AtomicLong();
            Duration cpu = cpu();
            long began = System.nanoTime();
            List<Future<Long>> counts = new ArrayList<>();
            for (MessageQueue queue : queues) {
                counts.add(threads.submit(() -> read(consumer, queue, bytes)));
            }
            long messages = 0;
            for (Future<Long> count : counts) {
                messages += count.get();
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf(Locale.ROOT, "{\"messages\": %d, \"bytes\": %d, \"seconds\": %.6f, \"cpu\": %.6f}%n",
                messages, bytes.get(), seconds, cpu().minus(cpu).toNanos() / 1e9);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static long read(DefaultMQPullConsumer consumer, MessageQueue queue, AtomicLong bytes) throws Exception {
        long first = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        long offset = first;
        long length = 0;
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " at " + offset + ": " + result.getPullStatus());
            }
            length += result.getMsgFoundList().stream().mapToLong(message -> message.getBody().length).sum();
            offset = result.getNextBeginOffset();
        }
        bytes.addAndGet(length);
        return offset - first;
    }

    private static Duration cpu() {
        return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO);
    }
}
