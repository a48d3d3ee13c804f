"""HyperQueue, a local cluster with one worker of two cores: runs N jobs and prints the seconds it took."""

import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

with tempfile.TemporaryDirectory() as place, LocalCluster(place, WorkerConfig(cores=2)) as cluster:
    client = cluster.client()
    job = Job()
    for _ in range(int(sys.argv[1])):
        job.program(["sh", "-c", "true"], stdout=None, stderr=None)
    began = time.perf_counter()
    client.wait_for_jobs([client.submit(job)])
    print(time.perf_counter() - began)
