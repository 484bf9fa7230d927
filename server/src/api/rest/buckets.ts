import {
  BucketListSchema,
  BucketNameSchema,
  BucketSchema,
  CopySchema,
  CreateBucketSchema,
  ListObjectsSchema,
  MountPathSchema,
  ObjectListSchema,
  SignedObjectSchema,
  SignObjectSchema,
  SyncStatesSchema,
  TransferSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { route, type Route } from '../http/route.ts';

const tag = 'buckets';
const BucketParams = z.object({ bucket: BucketNameSchema.describe("The bucket's name in the project") });
const SandboxParams = z.object({
  sandbox: z.string().min(1).max(80).describe("The sandbox's id or its name"),
});
const states = { description: 'The copies', schema: SyncStatesSchema };
const transfer = { description: 'What was copied', schema: TransferSchema };

export function bucketRoutes({ buckets }: Pick<Control, 'buckets'>): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/buckets',
      name: 'createBucket',
      summary: 'Give a bucket on an S3 server a name in the project',
      description: 'The server is asked for it first. Its credentials are stored secrets of the project.',
      tag,
      body: CreateBucketSchema,
      answers: { 201: { description: 'The bucket', schema: BucketSchema } },
      handle: async ({ json, principal, body, signal }) =>
        json(await buckets.create(principal, body, { signal }), 201),
    }),
    route({
      method: 'get',
      path: '/v1/buckets',
      name: 'listBuckets',
      summary: "List the project's buckets, by name",
      tag,
      answers: { 200: { description: 'All buckets', schema: BucketListSchema } },
      handle: async ({ json, principal }) => json({ buckets: await buckets.list(principal) }),
    }),
    route({
      method: 'get',
      path: '/v1/buckets/{bucket}',
      name: 'getBucket',
      summary: 'Get a bucket',
      tag,
      params: BucketParams,
      answers: { 200: { description: 'The bucket', schema: BucketSchema } },
      handle: async ({ json, principal, params }) => json(await buckets.get(principal, params.bucket)),
    }),
    route({
      method: 'delete',
      path: '/v1/buckets/{bucket}',
      name: 'removeBucket',
      summary: 'Forget a bucket; its objects stay',
      description: 'Refused while a sandbox has a copy of it.',
      tag,
      params: BucketParams,
      answers: { 204: { description: 'It is forgotten' } },
      handle: async ({ empty, principal, params }) => empty(await buckets.remove(principal, params.bucket)),
    }),
    route({
      method: 'get',
      path: '/v1/buckets/{bucket}/objects',
      name: 'listObjects',
      summary: 'List objects of a bucket',
      tag,
      params: BucketParams,
      query: ListObjectsSchema,
      answers: { 200: { description: 'Objects in the order of keys', schema: ObjectListSchema } },
      handle: async ({ json, principal, params, query, signal }) =>
        json(await buckets.objects(principal, params.bucket, query, { signal })),
    }),
    route({
      method: 'post',
      path: '/v1/buckets/{bucket}/import',
      name: 'importFromBucket',
      summary: 'Copy objects of a bucket into a directory of a sandbox',
      description: 'If it fails, some files are there and others are not; each that is there is whole.',
      tag,
      params: BucketParams,
      body: CopySchema,
      answers: { 200: transfer },
      handle: async ({ json, principal, params, body, signal }) =>
        json(await buckets.import(principal, params.bucket, body, { signal })),
    }),
    route({
      method: 'post',
      path: '/v1/buckets/{bucket}/export',
      name: 'exportToBucket',
      summary: 'Copy the files of a directory of a sandbox into a bucket',
      tag,
      params: BucketParams,
      body: CopySchema,
      answers: { 200: transfer },
      handle: async ({ json, principal, params, body, signal }) =>
        json(await buckets.export(principal, params.bucket, body, { signal })),
    }),
    route({
      method: 'post',
      path: '/v1/buckets/{bucket}/sign',
      name: 'signObject',
      summary: 'Get an address with which anybody may read or write one object, until it expires',
      tag,
      params: BucketParams,
      body: SignObjectSchema,
      answers: { 200: { description: 'The address', schema: SignedObjectSchema } },
      handle: async ({ json, principal, params, body }) =>
        json(await buckets.sign(principal, params.bucket, body)),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{sandbox}/buckets',
      name: 'listSyncs',
      summary: 'List the buckets that a sandbox has copies of or mounts, and what they do not have yet',
      tag,
      params: SandboxParams,
      answers: { 200: states },
      handle: async ({ json, principal, params }) => json(await buckets.syncs(principal, params.sandbox)),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{sandbox}/buckets/sync',
      name: 'syncBuckets',
      summary: 'Write what a sandbox changed to its buckets now',
      tag,
      params: SandboxParams,
      answers: { 200: states },
      handle: async ({ json, principal, params }) => json(await buckets.sync(principal, params.sandbox)),
    }),
    route({
      method: 'delete',
      path: '/v1/sandboxes/{sandbox}/buckets',
      name: 'detachBucket',
      summary: 'Keep the files of a copy, and write nothing of them to the bucket any more',
      tag,
      params: SandboxParams,
      query: z.object({ path: MountPathSchema }).strict(),
      answers: { 204: { description: 'It is detached' } },
      handle: async ({ empty, principal, params, query }) =>
        empty(await buckets.detach(principal, params.sandbox, query.path)),
    }),
  ];
}
