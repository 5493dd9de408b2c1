"""The Apache Python client through the RocketMQ proxy: the alternative to the gateway.

    python bench/official.py PROXY SCENARIO THREADS SECONDS TOPIC

Prints one JSON object as load.py does.
"""

import json
import sys
import threading
import time
from collections.abc import Callable

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

BODY = b"x" * 300


def send(configuration: ClientConfiguration, topic: str, threads: int, seconds: float) -> tuple[int, float]:
    producer = Producer(configuration, (topic,))
    producer.startup()
    counts = [0] * threads
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < end:
            message = Message()
            message.topic = topic
            message.body = BODY
            producer.send(message)
            counts[number] += 1

    passed = run(work, threads)
    producer.shutdown()
    return sum(counts), passed


def receive(configuration: ClientConfiguration, topic: str, threads: int, seconds: float) -> tuple[int, float]:
    consumer = SimpleConsumer(configuration, "official", {topic: FilterExpression()})
    consumer.startup()
    # The settings reach the proxy only after startup has returned.
    time.sleep(2)
    counts = [0] * threads
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < end:
            for message in consumer.receive(32, 30):
                consumer.ack(message)
                counts[number] += 1

    passed = run(work, threads)
    consumer.shutdown()
    return sum(counts), passed


def run(work: Callable[[int], None], threads: int) -> float:
    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    began = time.perf_counter()
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    return time.perf_counter() - began


if __name__ == "__main__":
    proxy, name, threads, seconds, topic = sys.argv[1:]
    configuration = ClientConfiguration(proxy, Credentials())
    load = {"send": send, "receive": receive}[name]
    cpu = time.process_time()
    messages, passed = load(configuration, topic, int(threads), float(seconds))
    found = {"messages": messages, "requests": messages, "seconds": passed, "cpu": time.process_time() - cpu}
    print(json.dumps(found), flush=True)
