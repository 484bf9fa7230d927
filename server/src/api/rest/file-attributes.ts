import { AttributesSchema, ChangeAttributesSchema } from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { PathQuery, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';

const tag = 'files';

/** Extended attributes of files. */
export function attributeRoutes(control: Pick<Control, 'files'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/files/xattrs',
      name: 'getAttributes',
      summary: 'Get extended attributes of the `user.` namespace',
      tag,
      params: SandboxParams,
      query: PathQuery,
      answers: { 200: { description: 'Attributes, in base64', schema: AttributesSchema } },
      async handle({ json, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        return json({ attributes: encoded(await files.xattrs(query.path, undefined, { signal })) });
      },
    }),
    route({
      method: 'put',
      path: '/v1/sandboxes/{id}/files/xattrs',
      name: 'setAttributes',
      summary: 'Set or remove extended attributes',
      tag,
      params: SandboxParams,
      query: PathQuery,
      body: ChangeAttributesSchema,
      answers: {
        200: { description: 'All attributes after the change, in base64', schema: AttributesSchema },
      },
      async handle({ json, principal, params, query, body, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        const set = Object.fromEntries(
          Object.entries(body.attributes).map(([name, value]) => [
            name,
            value === null ? null : Buffer.from(value, 'base64'),
          ]),
        );
        const attributes = await files.xattrs(query.path, set, { signal });
        return json({ attributes: encoded(attributes) });
      },
    }),
  ];
}

function encoded(attributes: Record<string, Uint8Array>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [name, Buffer.from(value).toString('base64')]),
  );
}
