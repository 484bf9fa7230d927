/**
 * What agents add to a command: MCP beside the same call of the API, and code in an interpreter beside
 * Jupyter's kernel on the machine itself.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Sandbox } from '@cay/sdk/client';
import { pythonPackages } from '../test/e2b/python-packages.ts';
import { liveServer, type LiveServer } from '../test/support/live-server.ts';
import { RUNTIMES, type Bench } from './bench.ts';
import { httpClient } from './http-client.ts';
import { interleaved, measure } from './measure.ts';

const TIMES = 100;
const JUPYTER = ['ipykernel==6.29.5', 'jupyter_client==8.6.3'];
/** Prints how long the kernel takes for a sum, the median in milliseconds. */
const JUPYTER_RUN = `
import time
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name='python3')
times = []
for index in range(${TIMES} + 20):
    begun = time.perf_counter()
    client.execute_interactive('1 + 1', timeout=30, output_hook=lambda message: None)
    if index >= 20: times.append(1000 * (time.perf_counter() - begun))
client.stop_channels()
manager.shutdown_kernel(now=True)
print(sorted(times)[len(times) // 2])
`;

export async function benchAgents({ report }: Pick<Bench, 'report'>): Promise<void> {
  const jupyter = await jupyterMs();
  if (typeof jupyter === 'number')
    report.add({ what: "1 + 1 by Jupyter's kernel, on the machine", value: jupyter, unit: 'ms' });
  else console.log(`Jupyter's kernel is not measured: ${jupyter.why}`);
  for (const runtime of RUNTIMES) {
    await using server = await liveServer({ CAY_RUNTIME: runtime, CAY_POOL: '0', CAY_LOG_LEVEL: 'warn' });
    await using sandbox = await Sandbox.create({}, { url: server.url, apiKey: server.apiKey });
    await benchMcp(report, server, sandbox.id, runtime);
    await sandbox.runCode('x = 1');
    const sum = await measure(TIMES, async () => void (await sandbox.runCode('1 + 1')), { warmUp: 20 });
    report.add({ what: `runCode('1 + 1'), ${runtime}`, value: sum.p50, p99: sum.p99, unit: 'ms' });
    if (typeof jupyter === 'number')
      report.add({ what: "  … of Jupyter's kernel", value: sum.p50 / jupyter, unit: 'x' });
  }
}

async function benchMcp(
  report: Bench['report'],
  { url, apiKey }: LiveServer,
  id: string,
  runtime: string,
): Promise<void> {
  const api = httpClient(url, apiKey);
  const client = new Client({ name: 'bench', version: '1' });
  const requestInit = { headers: { authorization: `Bearer ${apiKey}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL('/mcp', url), { requestInit }));
  try {
    const times = await interleaved(
      TIMES,
      {
        tool: async () =>
          void (await api.call('POST', `/v1/sandboxes/${id}/tools/bash`, { input: { command: 'true' } })),
        mcp: async () =>
          void (await client.callTool({ name: 'bash', arguments: { sandbox: id, command: 'true' } })),
      },
      { warmUp: 20 },
    );
    report.add({ what: `tool bash by the API, ${runtime}`, value: times.tool.p50, unit: 'ms' });
    report.add({ what: `tool bash by MCP, ${runtime}`, value: times.mcp.p50, unit: 'ms' });
    report.add({ what: '  … MCP adds', value: times.mcp.p50 - times.tool.p50, unit: 'ms' });
  } finally {
    api.close();
    await client.close();
  }
}

async function jupyterMs(): Promise<number | { why: string }> {
  const packages = await pythonPackages(JUPYTER);
  if ('why' in packages) return packages;
  const { stdout } = await promisify(execFile)(packages.python, ['-c', JUPYTER_RUN], { timeout: 120_000 });
  return Number(stdout.trim());
}
