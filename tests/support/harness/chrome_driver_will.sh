# What becomes of the browsers of a chromedriver whose tests died: run by its watchdog (child.rs), before it
# kills the driver. In: $pid, the driver, which stands still and leads the group that its browsers are in.
kill -9 "-$pid"
