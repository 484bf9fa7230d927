import { join } from 'node:path';
import { run } from '../../lib/run.ts';
import { answerError } from './sandbox-control.ts';

/** The files of an image, in the order in which the sandbox expects them. */
const FILES = ['checkpoint.img', 'pages_meta.img', 'pages.img'];

/** As long as a disk may take for all of a sandbox's memory. */
const WRITE_MS = 10 * 60_000;

/**
 * Makes a gVisor sandbox write its memory into `imageDir` and go on: what `runsc checkpoint` does, without
 * starting that. The guest's program passes the open files.
 */
export async function writeThroughSocket({
  helper,
  socket,
  imageDir,
}: {
  helper: string;
  socket: string;
  imageDir: string;
}): Promise<void> {
  const request = {
    method: 'containerManager.Checkpoint',
    arg: { metadata: { compression: 'none' }, have_pages_file: true, Resume: true },
  };
  const files = FILES.map((name) => `new:${join(imageDir, name)}`);
  const { stdout } = await run(helper, ['sandbox-call', socket, JSON.stringify(request), ...files], {
    timeoutMs: WRITE_MS,
    keepBytes: 128 * 1024,
  });
  const error = answerError(stdout, 'Checkpoint');
  if (error) throw error;
}
