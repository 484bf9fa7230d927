import { describe, expect, it } from 'vitest';
import { requireServerPolicy } from './require-server-policy.ts';
import { fakeApiServer } from '../testing/fake-api-server.ts';

/** The server's account, and the status of each answer to making an unlabelled namespace. */
async function asked(username: string, statuses: number[], withinMs = 2_000) {
  const api = await fakeApiServer({
    answer(url, response) {
      if (url.pathname.endsWith('/selfsubjectreviews'))
        return void response.end(JSON.stringify({ status: { userInfo: { username } } }));
      response.statusCode = statuses.length > 1 ? statuses.shift()! : statuses[0]!;
      response.end('{}');
    },
  });
  try {
    await requireServerPolicy(api.client, { installation: 'ours', withinMs });
    return api.asked.filter((each) => each.includes('/namespaces'));
  } finally {
    await api.close();
  }
}

const account = 'system:serviceaccount:cay:server';

describe('requireServerPolicy', () => {
  it('takes an account that is refused what is not its own, also if that takes a moment', async () => {
    expect(await asked(account, [403])).toEqual(['POST /api/v1/namespaces?dryRun=All']);
    expect(await asked(account, [422])).toHaveLength(1);
    expect(await asked(account, [201, 201, 403])).toHaveLength(3);
  });

  it('refuses one that nothing holds, and says what to apply', async () => {
    await expect(asked(account, [201], 100)).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { reason: 'server_policy_missing', policy: 'cay-server-ours' },
      hint: expect.stringContaining('cay kubernetes render') as string,
    });
  });

  it('does not ask of an administrator, and passes on what is no answer', async () => {
    expect(await asked('kubernetes-admin', [201])).toEqual([]);
    await expect(asked(account, [500])).rejects.toMatchObject({ code: 'unavailable' });
  });
});
