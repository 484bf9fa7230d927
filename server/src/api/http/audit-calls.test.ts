import { describe, expect, it } from 'vitest';
import { CayError } from '@cay/sdk/protocol';
import type { NewEvent } from '../../control/events/event-log.ts';
import { callAudit } from './audit-calls.ts';

describe('the audit of refused calls', () => {
  it('writes one event a minute for anonymous clients of one network, whatever their addresses', () => {
    const noted: NewEvent[] = [];
    const audit = callAudit({ append: (event: NewEvent) => noted.push(event) } as unknown as Parameters<
      typeof callAudit
    >[0]);
    const door = audit.authenticator({
      authenticate() {
        throw new CayError('unauthenticated', 'no');
      },
    });
    for (let host = 0; host < 500; host++) {
      const caller = { headers: {}, socket: { remoteAddress: `2001:db8:1:2::${host.toString(16)}` } };
      audit.turnedAway(caller, new CayError('unauthenticated', 'no'), { id: 'sbx_1', project: 'prj_1' });
      expect(() => door.authenticate(caller)).toThrow('no');
    }
    expect(noted.map(({ type }) => type).toSorted()).toEqual(['key.refused', 'token.refused']);
  });
});
