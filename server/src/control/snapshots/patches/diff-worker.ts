/**
 * The thread that compares files, so that the server answers others meanwhile. It knows neither trees nor
 * paths of the host.
 */
import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';
import { doDiffJob, type DiffAnswer, type DiffJob } from './diff-job.ts';

/** Of this thread alone: the server's own goes first where there are few processors. */
const NICE = 5;
try {
  setPriority(0, NICE);
} catch {
  // A system that does not allow it shares its processors as it likes.
}

parentPort!.on('message', (job: DiffJob) => {
  const send = (answer: DiffAnswer) =>
    parentPort!.postMessage(answer, 'patch' in answer ? [answer.patch.buffer as ArrayBuffer] : []);
  doDiffJob(job).then(send, (error: unknown) => send({ failure: String(error) }));
});
