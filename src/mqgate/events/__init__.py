"""Events: facts about messages, recorded by the gateway and written to the topic `mqgate_events`."""
