/** `kubectl exec`, for a look into a pod. */
import type { KubernetesClient } from '../../../server/src/backends/kubernetes/client/kubernetes-client.ts';

export interface ExecIn {
  namespace: string;
  pod: string;
  argv: string[];
}

/** Resolves with what the program wrote, or rejects with that if it fails. */
export async function execIn(client: KubernetesClient, { namespace, pod, argv }: ExecIn): Promise<string> {
  const socket = await client.socket(`/api/v1/namespaces/${namespace}/pods/${pod}/exec`, {
    action: `run ${argv.join(' ')}`,
    query: { command: argv, stdout: true, stderr: true },
  });
  const said: [string, string, string, string] = ['', '', '', ''];
  socket.on('message', (message: Buffer) => {
    const channel = message[0] as 0 | 1 | 2 | 3;
    said[channel] += message.subarray(1).toString();
  });
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.resume();
  await closed;
  const [, out, errors, status] = said;
  if (!status.includes('"Success"')) throw new Error(`${argv.join(' ')}: ${status} ${errors}`);
  return out;
}
