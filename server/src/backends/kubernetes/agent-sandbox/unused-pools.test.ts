import { describe, expect, it } from 'vitest';
import { fakeApiServer } from '../testing/fake-api-server.ts';
import { unusedPools } from './unused-pools.ts';

describe('unusedPools', () => {
  it('lists no kind that is not installed', async () => {
    const api = await fakeApiServer({
      answer(url, response) {
        if (url.pathname === '/apis/agents.x-k8s.io/v1beta1/namespaces/here/sandboxes')
          return void response.end(JSON.stringify({ items: [] }));
        response.statusCode = 404;
        response.end('{}');
      },
    });
    try {
      expect(
        await unusedPools({ client: api.client, namespace: 'here', installation: 'ours' }, undefined),
      ).toEqual([]);
      expect(api.asked.map((each) => each.split('?')[0])).toEqual([
        'GET /apis/extensions.agents.x-k8s.io/v1beta1',
        'GET /apis/extensions.agents.x-k8s.io/v1beta1',
        'GET /apis/agents.x-k8s.io/v1beta1/namespaces/here/sandboxes',
      ]);
    } finally {
      await api.close();
    }
  });
});
