/** `cay up` as users have it, on a runtime of one's choice: for tests of what others wrote for a server. */
import { openCay } from './cay.ts';
import { killServing, startServing } from './serving.ts';

export interface LiveServer extends AsyncDisposable {
  url: string;
  apiKey: string;
  /** What Cay's own clients and E2B's read from the environment. */
  env: Record<string, string>;
}

export async function liveServer(settings: Record<string, string> = {}): Promise<LiveServer> {
  const cay = await openCay({ CAY_PROBE: 'off', ...settings });
  const serving = await startServing(cay.env);
  const { url, key } = serving;
  return {
    url,
    apiKey: key,
    env: { CAY_URL: url, CAY_API_KEY: key, E2B_API_URL: url, E2B_SANDBOX_URL: url, E2B_API_KEY: key },
    async [Symbol.asyncDispose]() {
      await killServing(serving, 'SIGTERM');
      await cay[Symbol.asyncDispose]();
    },
  };
}
