import { openClient } from './client.ts';
import { endText } from './end-text.ts';
import { colour, print, printJson, printable, stateText } from './output.ts';
import type { CommonOptions } from './settings.ts';

/** The state of a sandbox and of its commands. */
export async function showSandboxStatus(ref: string, options: CommonOptions): Promise<void> {
  const sandbox = await openClient(options).sandbox(ref);
  const status = await sandbox.status();
  if (options.json) return printJson(status);
  const { phase, complete, active, succeeded, failed, message, reason, end, uid, pod } = status;
  const why = message ?? reason;
  print(
    `${stateText(phase)}${complete ? `, ${colour.bold('complete')}` : ''}${why === null ? '' : `: ${printable(why)}`}`,
  );
  print(`  commands   ${active} active, ${succeeded} succeeded, ${failed} failed`);
  if (end) print(`  its own    ${endText(end)}`);
  if (pod)
    print(
      `  pod        ${printable(pod.name)} in ${printable(pod.namespace)}${pod.node === undefined ? '' : `, on ${printable(pod.node)}`}`,
    );
  print(`  sandbox    ${sandbox.id}${uid === null ? '' : `, uid ${printable(uid)}`}`);
}
